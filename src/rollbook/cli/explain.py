"""`rollbook explain`: why each token of a sample trains or not, and where its advantage comes from."""

from __future__ import annotations

from pathlib import Path

import click

from rollbook.cli.run_place import RUN_PLACE
from rollbook.cli.screen import MISSING, console, counted, counts, number, print_json, share, show_table
from rollbook.cli.show import find_rollout
from rollbook.cli.unfinished import tell_unfinished
from rollbook.run import open_run
from rollbook.run.explain import AdvantageSource, BranchSpans, Explanation, RunSharing, explain, sharing
from rollbook.store import RunReader
from rollbook.trace.reasons import Span

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook explain runs/demo               what shared prefixes would save
  rollbook explain runs/demo 0003-2        one rollout, by a part of its id
  rollbook explain runs/demo 0003-2:1      one branch of it
"""


@click.command(epilog=EXAMPLES, short_help="Say why each token of a sample trains or not.")
@click.argument("run", type=RUN_PLACE)
@click.argument("sample", required=False)
@click.option("--max-tokens", type=click.IntRange(1), help="As in the export: longer branches do not train.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(run: Path | str, sample: str | None, max_tokens: int | None, as_json: bool) -> None:
    """Say for each token of SAMPLE why it trains or not, and where its advantage comes from.

    SAMPLE is ROLLOUT or ROLLOUT:BRANCH; ROLLOUT is an id or a part of one. Without SAMPLE: how many tokens a trainer
    would save on RUN if it computed shared prefixes once.
    """
    source = open_run(run)
    tell_unfinished(source, run)
    if sample is None:
        found = sharing(source)
        if as_json:
            print_json(found.to_dict())
        else:
            _show_sharing(run, found)
        return
    rollout, branch = _find(source, run, sample)
    told = explain(source, rollout, branch, max_tokens=max_tokens)
    if as_json:
        print_json(told.to_dict())
    else:
        _show(told)


def _find(source: RunReader, run: Path | str, sample: str) -> tuple[str, int | None]:
    """The rollout and the branch; an id that ends like a branch is an id first."""
    part, colon, branch = sample.rpartition(":")
    if not colon or not branch.isdecimal() or sample in source:
        return find_rollout(source, run, sample), None
    return find_rollout(source, run, part), int(branch)


def _show_sharing(run: Path | str, found: RunSharing) -> None:
    rows = [
        (name, f"{part.sequences}", f"{part.flat_tokens}", f"{part.tree_tokens}", share(part.saved))
        for name, part in (("one rollout", found.within_rollouts), ("one group", found.within_groups))
    ]
    heads = ("prefixes shared within", "samples", "tokens, flat", "tokens, as a tree", "saved")
    show_table(console(), f"{run}: what sharing prefixes would save", heads, rows, form="lrrrr")


def _show(told: Explanation) -> None:
    out = console()
    fate = told.disposition
    rows = [
        ("disposition", f"{fate.fate} by '{fate.rule}' ({told.decided})"),
        ("sampled tokens", f"{told.captured}: {told.trained} train, lost: {counts(told.lost)}"),
        *_advantage_rows(told.advantage),
    ]
    show_table(out, f"rollout {told.rollout}", ("", ""), rows)
    if told.advantage is not None:
        members = [
            (each.rollout, number(each.reward), number(each.advantage), each.disposition or MISSING)
            for each in told.advantage.members
        ]
        show_table(out, "compared with", ("rollout", "reward", "advantage", "disposition"), members, form="krrl")
    for branch in told.branches:
        heads = ("tokens", "count", "message", "turn", "trains", "reason")
        show_table(out, _title(branch), heads, [_line(span) for span in branch.spans], form="krrrll")
    show_table(out, "reasons", ("", ""), list(told.reasons.items()), form="kl")


def _advantage_rows(source: AdvantageSource | None) -> list[tuple[str, str]]:
    if source is None:
        return [("advantage", f"{MISSING} (none was recorded)")]
    return [
        ("advantage", number(source.advantage)),
        ("estimator", f"{source.estimator}, baseline {number(source.baseline)}"),
        ("group", f"{source.used} of {source.scheduled} scheduled vote, by the ending rules {source.rules}"),
    ]


def _title(branch: BranchSpans) -> str:
    why = f", does not train: {branch.loss}" if branch.loss else ""
    weight = "" if branch.weight is None else f", weight {number(branch.weight)}"
    return f"branch {branch.branch}: {counted(branch.tokens, 'token')}, {branch.trained} train{weight}{why}"


def _line(span: Span) -> tuple[str, ...]:
    elsewhere = "" if span.owner is None else f" (trains in branch {span.owner})"
    return (
        f"{span.start}..{span.end - 1}",
        str(len(span)),
        str(span.node),
        MISSING if span.turn is None else str(span.turn),
        "yes" if span.trains else "no",
        f"{span.reason}{elsewhere}",
    )
