"""`rollbook show`: one line per rollout, or one trace as readable text."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

import click
import msgspec

from rollbook.cli.run_place import RUN_PLACE
from rollbook.cli.screen import MISSING, console, counted, counts, number, print_json, show_table, visible
from rollbook.cli.selection_view import show_selection
from rollbook.cli.trace_view import show_trace, trace_document
from rollbook.cli.unfinished import tell_unfinished
from rollbook.errors import UsageError
from rollbook.run import open_run
from rollbook.run import selection as select
from rollbook.store import RunReader
from rollbook.trace import Summary, facts
from rollbook.trace.rescored import rescored

__all__ = ["command"]

EXAMPLES = """\b
Examples:
  rollbook show runs/demo
  rollbook show runs/demo 0003-2          one trace, by a part of its id
  rollbook show runs/demo 0003-2 --full   without folding long texts
  rollbook show runs/demo --selection     what was lost, by task, length, tool and version
"""
NARROW = 100
"""Columns below which the table leaves out what can be seen elsewhere."""
LISTED = 8
"""Ids named where a part of an id fits several."""


@click.command(epilog=EXAMPLES, short_help="Show a run, one line per rollout, or one of its traces.")
@click.argument("run", type=RUN_PLACE)
@click.argument("trace", required=False)
@click.option("--full", is_flag=True, help="Do not fold long texts.")
@click.option("--selection", is_flag=True, help="Show what became of the attempts, by task, length, tool and version.")
@click.option("--json", "as_json", is_flag=True, help="Write one JSON document to stdout.")
def command(run: Path | str, trace: str | None, full: bool, selection: bool, as_json: bool) -> None:
    """Show the rollouts of RUN, or the one whose id TRACE is or is a part of."""
    source = open_run(run)
    tell_unfinished(source, run)
    if selection:
        _show_selection(source, run, trace, as_json=as_json)
    elif trace is None:
        _show_run(source, run, as_json=as_json)
    else:
        _show_one(source, find_rollout(source, run, trace), full=full, as_json=as_json)
    if not source.report.clean:
        console(stderr=True).print(f"Not everything could be read:\n{visible(str(source.report))}")


def find_rollout(source: RunReader, run: Path | str, part: str) -> str:
    """The rollout with this id, else the only one that is listed so, else the only one whose id holds it; raises
    `UsageError`."""
    rows = list(source.summaries())
    ids = [row.rollout for row in rows]
    listed = [row.rollout for row in rows if _listed(row) == part]
    found = [part] if part in ids else listed or [each for each in ids if part in each]
    if len(found) == 1:
        return found[0]
    if not found:
        raise UsageError(
            f"no rollout of {run} has {part!r} in its id; `rollbook show {shlex.quote(str(run))}` lists all"
        )
    more = f" and {len(found) - LISTED} more" if len(found) > LISTED else ""
    raise UsageError(f"{part!r} fits {len(found)} rollouts: {', '.join(found[:LISTED])}{more}; give more of the id")


def _show_run(source: RunReader, run: Path | str, *, as_json: bool) -> None:
    notes = source.annotations()
    fates, advantages = facts.dispositions(notes), facts.advantages(notes)
    given = facts.rewards(notes)
    rows_now = (
        msgspec.structs.replace(row, reward=given[row.rollout].total) if row.rollout in given else row
        for row in source.summaries()
    )
    summaries = sorted(rows_now, key=lambda row: (row.group, row.seat, row.member, row.attempt))
    if as_json:
        rows: list[dict[str, Any]] = [
            {
                **msgspec.to_builtins(row),
                "disposition": msgspec.to_builtins(fates.get(row.rollout)),
                "advantage": advantage.advantage if (advantage := advantages.get(row.rollout)) else None,
            }
            for row in summaries
        ]
        print_json({"run": str(run), "rollouts": rows})
        return
    lines = [_line(row, fate.fate if (fate := fates.get(row.rollout)) else "undecided") for row in summaries]
    heads = ("rollout", "ending", "reward", "fate", "turns", "tokens", "tool calls", "wall s")
    out = console()
    if out.width < NARROW:  # the kind follows from the reason, and the wall time is in each trace
        heads, lines = heads[:-1], [(line[0], line[1].rpartition("/")[2], *line[2:-1]) for line in lines]
    show_table(
        out,
        f"{run}: {counted(len(lines), 'rollout')} (ids are group-member.attempt; tokens are sampled/all)",
        heads,
        lines,
        form="lkrkrrlr",
    )


def _show_selection(source: RunReader, run: Path | str, trace: str | None, *, as_json: bool) -> None:
    if trace is not None:
        raise UsageError("--selection is about a whole run: leave TRACE out")
    found = select(source)
    if as_json:
        print_json({"run": str(run), "selection": found.to_dict()})
    else:
        show_selection(console(), found)


def _listed(row: Summary) -> str:
    """How the table calls a rollout: its id without the run's."""
    return row.rollout.removeprefix(f"{row.run}-") if row.run else row.rollout


def _line(row: Summary, fate: str) -> tuple[str, ...]:
    return (
        _listed(row),
        f"{row.kind}/{row.reason}" if row.kind else MISSING,
        number(row.reward, 2),
        fate,
        str(row.turns),
        f"{row.sampled}/{row.tokens}",
        counts(dict(sorted(row.parse.items())), MISSING),
        number(row.wall, 2),
    )


def _show_one(source: RunReader, rollout: str, *, full: bool, as_json: bool) -> None:
    notes = source.annotations()
    trace = rescored(source.get(rollout), facts.rewards(notes).get(rollout))
    fate, advantage = facts.dispositions(notes).get(rollout), facts.advantages(notes).get(rollout)
    if as_json:
        print_json(trace_document(trace, fate, advantage))
    else:
        show_trace(console(), trace, fate, advantage, full=full)
