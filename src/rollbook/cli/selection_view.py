"""The selection ledger as a table."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec
from rich.console import Console

from rollbook.cli.screen import MISSING, counted, share, show_table
from rollbook.run.selection import GroupFacts, SelectionReport, SelectionRow

__all__ = ["group_line", "show_selection"]

COUNTS = ("retried", "dropped", "masked", "stale", "refills")
"""Columns that are left out where nothing is in them."""
MOST = 12
"""Rows of one facet; of more, those that lost most."""


def show_selection(out: Console, found: SelectionReport) -> None:
    """What became of the groups in one line, then the attempts by task, length, tool and version."""
    out.print(group_line(found.groups) + "\n")
    facets = {row.facet: None for row in found.rows}
    rows: list[SelectionRow] = [found.whole]
    left_out = 0
    for facet in facets:
        mine = [row for row in found.rows if row.facet is facet]
        shown = sorted(mine, key=lambda row: (-_lost(row), _in_order(row.value)))[:MOST]
        if len(shown) == len(mine):
            shown.sort(key=lambda row: _in_order(row.value))
        left_out += len(mine) - len(shown)
        rows += shown
    shown_counts = [name for name in COUNTS if any(msgspec.structs.asdict(row)[name] for row in rows)]
    heads = ("by", "", "attempts", "used", *shown_counts, "lost", "excess")
    lines = [_line(row, shown_counts) for row in rows]
    show_table(out, "Selection: what became of the attempts", heads, lines, form="ll" + "r" * (len(heads) - 2))
    if left_out:
        out.print(f"{counted(left_out, 'more row')}, of those that lost least: --json has all.\n")
    if found.undecided:
        out.print(f"{counted(found.undecided, 'attempt')} that nobody decided about: in no row.\n")


def group_line(groups: GroupFacts) -> str:
    """The groups in one line; what did not happen is left out."""
    parts = [
        f"{groups.closed} of {counted(groups.groups, 'group')} closed",
        *(
            f"{count} {what}"
            for count, what in (
                (groups.zero_variance, "without a signal (all votes equal)"),
                (groups.empty, "without any vote"),
                (groups.resampled or 0, "of further tasks"),
            )
            if count
        ),
        *(
            f"{counted(count, what)} {how}"
            for count, what, how in (
                (groups.refilled, "member", "refilled"),
                (groups.unrecorded, "member", "never recorded"),
                (groups.late, "rollout", "too late"),
                (groups.stale, "rollout", "too stale"),
            )
            if count
        ),
    ]
    return ", ".join(parts)


def _in_order(value: str) -> list[tuple[int, str]]:
    """Sorts numbers within names by their size."""
    return [(int(part) if part.isdecimal() else 0, part) for part in re.split(r"([0-9]+)", value)]


def _lost(row: SelectionRow) -> int:
    return row.attempts - row.used


def _line(row: SelectionRow, counts: Sequence[str]) -> tuple[str, ...]:
    numbers = msgspec.structs.asdict(row)
    return (
        row.facet or "all",
        row.value,
        *(str(numbers[name]) for name in ("attempts", "used", *counts)),
        share(_lost(row) / row.attempts) if row.attempts else MISSING,
        MISSING if row.excess is None else f"+{row.excess:.0%}",
    )
