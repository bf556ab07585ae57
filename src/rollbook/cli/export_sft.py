"""`rollbook export --to sft`: its options, and what is said of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import click

from rollbook.cli.screen import console, counts, print_json, show_table
from rollbook.errors import UsageError
from rollbook.export import SftReport, export_sft
from rollbook.trace import TraceSource

__all__ = ["SFT", "refuse_sft_options", "sft_options", "write_sft"]

SFT = "sft"
"""The name of the form, beside those of samples."""


def sft_options(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options of `write_sft`."""
    for option in (
        click.option("--split", is_flag=True, help="sft: prompt and completion apart."),
        click.option("--dedupe", metavar="WHAT", help="sft: none, content or task. [default: content]"),
        click.option("--threshold", type=float, help="sft: the lowest reward that is taken. [default: any]"),
        click.option("--select", metavar="HOW", help="sft: rejection or best. [default: best without a threshold]"),
    ):
        command = option(command)
    return command


def refuse_sft_options(form: str, given: Mapping[str, object]) -> None:
    """Refuse options of conversations for a form of samples; raises `UsageError`."""
    wrong = [f"--{name}" for name, value in given.items() if value not in (None, False)]
    if wrong:
        raise UsageError(f"{', '.join(wrong)} goes with --to {SFT} only, not with --to {form}")


def write_sft(
    source: TraceSource,
    out: Path,
    *,
    select: str | None,
    threshold: float | None,
    dedupe: str | None,
    split: bool,
    overwrite: bool,
    as_json: bool,
) -> None:
    """Write the conversations and show the report."""
    chosen = select or ("best" if threshold is None else "rejection")
    done = export_sft(
        source, out, select=chosen, threshold=threshold, dedupe=dedupe or "content", split=split, overwrite=overwrite
    )
    if as_json:
        print_json(done.to_dict())
    else:
        show_table(console(), f"{out}", ("", ""), _rows(done))


def _rows(done: SftReport) -> list[tuple[str, str]]:
    return [
        ("rollouts read", str(done.rollouts)),
        ("conversations written", f"{done.conversations}, of {done.tasks} tasks"),
        ("selection", done.select if done.threshold is None else f"{done.select}, reward from {done.threshold:g}"),
        ("the policy's turns", str(done.turns)),
        ("replies of others", str(done.foreign)),
        ("left out", counts(done.left_out)),
        ("annotations used", f"{done.snapshot.count}, hash {done.snapshot.hash}"),
    ]
