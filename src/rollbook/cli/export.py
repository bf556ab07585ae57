"""`rollbook export`: samples in the form that a trainer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from rollbook.cli.export_sft import SFT, refuse_sft_options, sft_options, write_sft
from rollbook.cli.run_place import RUN_PLACE
from rollbook.cli.screen import console, counts, print_json, show_table
from rollbook.cli.unfinished import tell_unfinished
from rollbook.errors import UsageError
from rollbook.export import FORMS, ExportReport, export
from rollbook.run import open_run

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook export runs/demo --to jsonl runs/demo.jsonl
  rollbook export runs/demo --to parquet runs/demo.parquet --max-tokens 4096 --overwrite
  rollbook export runs/demo --to sft runs/demo.sft.jsonl --threshold 1
"""


@click.command(epilog=EXAMPLES, short_help="Write a run's samples for a trainer.")
@click.argument("run", type=RUN_PLACE)
@click.option("--to", "form", required=True, metavar="FORM", help=f"{', '.join(FORMS)} or {SFT}.")
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--overwrite", is_flag=True, help="Replace OUT if it is there.")
@click.option("--max-tokens", type=click.IntRange(1), help="Leave longer branches out. [default: no limit]")
@click.option("--allow-unfit-logprobs", is_flag=True, help="Take logprobs of another distribution than was sampled.")
@sft_options
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(
    run: Path | str,
    form: str,
    out: Path,
    overwrite: bool,
    max_tokens: int | None,
    allow_unfit_logprobs: bool,
    as_json: bool,
    **sft: Any,
) -> None:
    """Write the samples of RUN to OUT, and an account of every sampled token beside it (OUT.report.json)."""
    if form == SFT and (max_tokens is not None or allow_unfit_logprobs):
        raise UsageError(f"--max-tokens and --allow-unfit-logprobs are about samples; --to {SFT} writes conversations")
    if form != SFT:
        refuse_sft_options(form, sft)
    source = open_run(run)
    tell_unfinished(source, run)
    if form == SFT:
        write_sft(source, out, overwrite=overwrite, as_json=as_json, **sft)
        return
    done = export(
        source,
        form,
        out,
        overwrite=overwrite,
        max_tokens=max_tokens,
        allow_unfit_logprobs=allow_unfit_logprobs,
    )
    if as_json:
        print_json(done.to_dict())
    else:
        show_table(console(), f"{out}", ("", ""), _rows(done))


def _rows(done: ExportReport) -> list[tuple[str, str]]:
    return [
        ("rollouts read", str(done.rollouts)),
        ("samples written", _written(done)),
        ("sampled tokens", f"{done.captured}: {done.trained} train, lost: {counts(done.lost)}"),
        ("rollouts without a sample", counts(done.without_samples)),
        ("rollouts refused", counts(done.refused)),
        ("turn rewards without a sample", str(done.unbound_turn_rewards)),
        ("samples with unfit logprobs", str(done.unfit_samples)),
        ("annotations used", f"{done.snapshot.count}, hash {done.snapshot.hash}"),
    ]


def _written(done: ExportReport) -> str:
    return (
        f"{done.samples}, {done.without_advantage} of them without an advantage"
        if done.without_advantage
        else str(done.samples)
    )
