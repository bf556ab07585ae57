"""What was selected: what became of a run's attempts by task, length, last tool and policy version, and of its groups.

Everything is counted from the record alone, so it is the same whoever asks and however often the run was resumed. A
group counts as closed when its advantages are recorded, or when all that was decided of it came late.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import msgspec

from rollbook.audit import Evidence, Facet, SelectionCount, SelectionLedger
from rollbook.errors import ConfigError
from rollbook.rollout.pool import LATE
from rollbook.run.planning import closed_empty
from rollbook.run.resume import Planned, asked
from rollbook.store import RunReader
from rollbook.trace import facts

__all__ = ["GroupFacts", "SelectionReport", "SelectionRow", "group_facts", "selection"]


class GroupFacts(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the groups."""

    groups: int
    """Groups of which anything is stored."""
    closed: int
    empty: int
    """Closed groups in which nobody votes."""
    zero_variance: int
    """Closed groups whose votes are all equal: nothing is learned from them."""
    resampled: int | None
    """Groups of further tasks, in place of such ones. None: the record does not say how many tasks were asked for."""
    refilled: int
    """Members that took the place of dropped ones."""
    late: int
    """Rollouts that ended when nobody waited for them any more."""
    unrecorded: int
    """Members of closed groups of which nothing is stored: they never ran, or their workers died at once."""
    stale: int
    """Rollouts that the staleness bound dropped."""


class SelectionRow(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the attempts of one task, length, tool or version."""

    facet: Facet | None
    """None: of all attempts."""
    value: str
    attempts: int
    used: int
    retried: int
    dropped: int
    masked: int
    stale: int
    refills: int
    excess: float | None
    """How much larger the share of lost attempts is than among the rest, as a fraction; None: it does not stand out."""


class SelectionReport(msgspec.Struct, frozen=True, kw_only=True):
    """The selection ledger of a run."""

    groups: GroupFacts
    whole: SelectionRow
    rows: tuple[SelectionRow, ...]
    """By facet; within it as the attempts first came."""
    undecided: int
    """Attempts of which the record does not say what became of them; they are in no row."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return msgspec.to_builtins(self)


def selection(source: RunReader) -> SelectionReport:
    """The ledger of a run. Traces are read one at a time and none is kept."""
    notes = source.annotations()
    evidence = Evidence(
        dispositions=facts.dispositions(notes),
        advantages=facts.advantages(notes),
        staleness=facts.stalenesses(notes),
    )
    ledger = SelectionLedger(evidence)
    for trace in source.traces():
        ledger.see(trace)
    excess = {(facet, value): higher for higher, facet, value in ledger.excesses()}
    order = list(Facet)
    rows = sorted(ledger.rows.items(), key=lambda item: order.index(item[0][0]))
    return SelectionReport(
        groups=group_facts(source, evidence),
        whole=_row(None, "", ledger.whole, None),
        rows=tuple(_row(facet, value, row, excess.get((facet, value))) for (facet, value), row in rows),
        undecided=ledger.undecided,
    )


def group_facts(source: RunReader, evidence: Evidence) -> GroupFacts:
    """What became of the groups, without reading any trace."""
    members: defaultdict[str, set[int]] = defaultdict(set)
    tasks = dict[str, None]()
    rows = list(source.summaries())
    for row in rows:
        members[row.group].add(row.member)
        tasks[row.task] = None
    closed: dict[str, list[facts.Advantage]] = defaultdict(list)
    for key, fact in {(fact.group, fact.seat): fact for fact in evidence.advantages.values()}.items():
        closed[key[0]].append(fact)
    planned, empty = _planned(source), closed_empty(rows, evidence.dispositions) - closed.keys()
    return GroupFacts(
        groups=len(members),
        closed=len(closed) + len(empty),
        empty=len(empty) + sum(all(not seat.used for seat in seats) for seats in closed.values()),
        zero_variance=len(facts.flat_groups(evidence.advantages.values())),
        resampled=None if planned is None else max(len(tasks) - planned.tasks, 0),
        refilled=sum(
            len([each for each in members[group] if each >= seats[0].scheduled]) for group, seats in closed.items()
        ),
        late=sum(each.rule.startswith(LATE) for each in evidence.dispositions.values()),
        unrecorded=sum(_unrecorded(members[group], seats[0].scheduled) for group, seats in closed.items())
        + (0 if planned is None else sum(_unrecorded(members[group], planned.group) for group in empty)),
        stale=sum(each.dropped for each in evidence.staleness.values()),
    )


def _unrecorded(members: set[int], scheduled: int) -> int:
    """Numbers below the highest of which nothing is there."""
    expected = max(scheduled, max(members, default=-1) + 1)
    return expected - len(members)


def _planned(source: RunReader) -> Planned | None:
    try:
        return asked(source.manifest, source.folder).planned()
    except ConfigError:
        return None


def _row(facet: Facet | None, value: str, count: SelectionCount, excess: float | None) -> SelectionRow:
    return SelectionRow(
        facet=facet,
        value=value,
        attempts=count.attempts,
        used=count.used,
        retried=count.retried,
        dropped=count.dropped,
        masked=count.masked,
        stale=count.stale,
        refills=count.refills,
        excess=excess,
    )
