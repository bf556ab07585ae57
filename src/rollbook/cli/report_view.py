"""A run's report as tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from rich.console import Console

from rollbook.cli.screen import MISSING, counted, counts, number, share, show_table
from rollbook.run import RunReport
from rollbook.run.report_rows import GroupRow, MemberRow, TimeRow
from rollbook.run.resources import ResourceReport
from rollbook.trace import Fate

__all__ = ["MOST_GROUPS", "show_endings", "show_groups", "show_report", "show_resources", "show_time", "show_totals"]


ENGINE = "engine_"
"""Begins the names of parts that lie within the engine's time."""
IN_LINE = 4
"""Members of a group in one line."""
MOST_GROUPS = 40
"""Groups that are shown."""


LATE = ("median", "99th percentile", "most")


def show_report(out: Console, report: RunReport) -> None:
    """Everything but the audit."""
    show_endings(out, report)
    show_groups(out, report)
    show_time(out, report)
    if report.resources is not None:
        show_resources(out, report.resources)
    show_totals(out, report)


def show_endings(out: Console, report: RunReport) -> None:
    """Endings by kind and reason, then what became of the rollouts."""
    rows = [(row.kind, row.reason, str(row.count), share(row.count / report.rollouts)) for row in report.endings]
    show_table(out, "Endings", ("kind", "reason", "rollouts", "share"), rows, form="llrr")
    fates = [(row.fate or "undecided", row.rule or MISSING, str(row.count)) for row in report.dispositions]
    show_table(out, "Dispositions", ("fate", "rule", "rollouts"), fates, form="llr")


def show_groups(out: Console, report: RunReport) -> None:
    """One line per group: what the last attempt of each member got, in the order of the members."""
    rows = [
        (
            _short(row.group),
            row.task,
            f"{number(row.used)}/{number(row.scheduled)}",
            number(row.mean, 3),
            _in_lines([number(member.reward, 2) for member in _last(row)]),
            _in_lines([MISSING if member.advantage is None else f"{member.advantage:+.2f}" for member in _last(row)]),
            _retried(row.members),
        )
        for row in report.groups[:MOST_GROUPS]
    ]
    heads = ("group", "task", "used", "mean", "rewards", "advantages", "retried")
    if all(row[-1] == MISSING for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    show_table(out, "Rewards by group", heads, rows, form="llrrkkl")
    if len(report.groups) > MOST_GROUPS:
        out.print(f"The first {MOST_GROUPS} of {len(report.groups)} groups; --json has all.\n")
    if any(member.reward is None for row in report.groups for member in _last(row)):
        out.print(f"{MISSING}: no reward, which is not 0; such a rollout does not vote.\n")


def show_time(out: Console, report: RunReport) -> None:
    """Where the rollouts' wall time went."""
    inside = [row for row in report.time if row.part.startswith(ENGINE)]
    whole = [row for row in report.time if row not in inside]
    engine = next((place for place, row in enumerate(whole, 1) if row.part == "engine"), len(whole))
    ordered = [*whole[:engine], *inside, *whole[engine:]]
    rows = [(_part(row), number(row.seconds, 2), share(row.share)) for row in ordered]
    show_table(out, "Time split, all rollouts added up", ("part", "seconds", "share"), rows, form="lrr")
    if report.overlapped:
        out.print(f"{number(report.overlapped, 2)} s more ran beside these, in parallel.\n")


def show_resources(out: Console, report: ResourceReport) -> None:
    """What the rollouts shared, and who waited for it. A resource that nobody used is left out."""
    rows = [
        (
            each.name,
            "none" if each.limit is None else str(each.limit),
            str(each.in_use),
            str(each.peak),
            str(each.waiting),
            str(each.entered),
            number(each.waited, 2),
            number(each.paused, 2),
        )
        for each in report.limiters
        if each.entered or each.waiting
    ]
    heads = ("resource", "limit", "in use", "peak", "waiting", "entered", "waited s", "paused s")
    if not rows:
        return
    show_table(out, f"Resources, {counted(report.workers, 'worker')}", heads, rows, form="lrrrrrrr")
    lag = report.lag
    median, p99 = lag.quantile(0.5), lag.quantile(0.99)
    if median is not None and p99 is not None:
        shown = ", ".join(
            f"{1000 * value:.1f} ms ({name})" for value, name in zip((median, p99, lag.largest), LATE, strict=True)
        )
        out.print(f"What was due in the event loop ran late by {shown}.\n")


def show_totals(out: Console, report: RunReport) -> None:
    """Tokens, tool calls and speed."""
    tokens = report.tokens
    rows = [
        ("rollouts", str(report.rollouts)),
        ("turns", str(report.turns)),
        ("prompt tokens", _prompt(tokens.prompt, tokens.cached)),
        ("sampled tokens", f"{tokens.sampled}: {tokens.trained} to train, lost: {counts(tokens.lost)}"),
        ("tool calls by parse status", counts(report.tool_calls)),
        ("wall of the run, pauses apart", f"{number(report.wall, 1)} s"),
        ("sampled tokens per second", number(report.tokens_per_second, 1)),
    ]
    show_table(out, "Totals", ("", ""), rows)


def _short(group: str) -> str:
    """The group's number, without the run's id."""
    return group.rpartition("-")[2]


def _prompt(prompt: int | None, cached: int | None) -> str:
    if prompt is None:
        return f"{MISSING} (the engine did not tell)"
    return f"{prompt} ({number(cached)} from the engine's cache)"


def _part(row: TimeRow) -> str:
    if row.part.startswith(ENGINE):
        return f"  of which {row.part.removeprefix(ENGINE)}"
    return "wall of all rollouts" if row.part == "wall" else row.part


def _in_lines(cells: list[str]) -> str:
    """Cells of one width, so many in a line that a member stands at the same place in each column."""
    width = max(map(len, cells), default=0)
    padded = [cell.rjust(width) for cell in cells]
    return "\n".join(" ".join(padded[start : start + IN_LINE]) for start in range(0, len(padded), IN_LINE))


def _last(row: GroupRow) -> list[MemberRow]:
    """The last attempt of each member."""
    return list({member.member: member for member in row.members}.values())


def _retried(members: Iterable[MemberRow]) -> str:
    return counts(Counter(member.reason for member in members if member.fate is Fate.RETRIED), MISSING)
