"""The selection ledger: which attempts were lost, by task, length, last tool and policy version.

Dropping and retrying select: what is lost more often among long rollouts, or on one task, is missing from what the
policy learns. Everything that is not used counts as lost: retried, dropped, masked, too stale. Length, tool and version
are told of attempts that sampled something; an attempt that failed before has none. A value of one of the four stands
out where it and the rest have enough attempts each and its share of lost ones is higher than theirs by more than
chance explains; the check measures the largest such excess.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.ending import Fate
from rollbook.trace.trace import Trace

__all__ = [
    "NO_TOOL",
    "Facet",
    "Selection",
    "SelectionCount",
    "SelectionLedger",
    "StaleDropped",
    "StalestUsed",
    "length_bucket",
]

LEAST = 8
"""Attempts that a value and the rest must have to be compared."""
CHANCE = 3.0
"""Standard errors that a difference must exceed."""
LENGTHS = (1, 64, 256, 1024, 4096, 16384, 65536)
"""Where buckets of sampled tokens begin."""
NO_TOOL = "none"
"""Stands for the tool of attempts that called none."""
NO_VERSION = "not told"


class Facet(StrEnum):
    """By what attempts are told apart."""

    TASK = "task"
    LENGTH = "length"
    """Sampled tokens, in buckets."""
    TOOL = "tool"
    """The tool that was called last."""
    VERSION = "version"
    """The oldest policy version among its tokens."""


@dataclass(slots=True)
class SelectionCount:
    """What became of the attempts of one value of a facet."""

    used: int = 0
    retried: int = 0
    dropped: int = 0
    """By a rule of their ending, of the scorer or of the group."""
    masked: int = 0
    stale: int = 0
    """Dropped by the staleness bound."""
    refills: int = 0
    """Of all these, attempts of members that took the place of dropped ones."""
    lost_first: str = ""
    """The first lost rollout; empty: none was lost."""

    @property
    def lost(self) -> int:
        """Attempts that were not used."""
        return self.retried + self.dropped + self.masked + self.stale

    @property
    def attempts(self) -> int:
        return self.used + self.lost


def length_bucket(sampled: int) -> str:
    """The bucket of so many sampled tokens."""
    begin = max((each for each in LENGTHS if each <= sampled), default=0)
    after = next((each for each in LENGTHS if each > begin), None)
    return "0" if not begin else f"{begin} and more" if after is None else f"{begin} to {after - 1}"


def facets_of(trace: Trace) -> Iterator[tuple[Facet, str]]:
    """Where an attempt belongs."""
    yield Facet.TASK, trace.head.task.id
    if not trace.graph.sampled_count:
        return
    yield Facet.LENGTH, length_bucket(trace.graph.sampled_count)
    yield Facet.TOOL, trace.last_tool or NO_TOOL
    versions = trace.graph.versions.view
    yield Facet.VERSION, str(int(versions[:, 0].min())) if len(versions) else NO_VERSION


@dataclass(slots=True)
class SelectionLedger:
    """Counts over a batch."""

    evidence: Evidence
    whole: SelectionCount = field(default_factory=SelectionCount)
    rows: dict[tuple[Facet, str], SelectionCount] = field(default_factory=dict[tuple[Facet, str], SelectionCount])
    undecided: int = 0
    """Attempts of which the record does not say what became of them; they are in no count."""

    def see(self, trace: Trace) -> None:
        """Take one attempt in."""
        if trace.id not in self.evidence.dispositions:
            self.undecided += 1
            return
        self._count(self.whole, trace)
        for key in facets_of(trace):
            self._count(self.rows.setdefault(key, SelectionCount()), trace)

    def _count(self, row: SelectionCount, trace: Trace) -> None:
        stale = self.evidence.staleness.get(trace.id)
        match self.evidence.dispositions[trace.id].fate:
            case Fate.USED | Fate.PENALISED:
                row.used += 1
            case _ if stale is not None and stale.dropped:
                row.stale += 1
            case Fate.RETRIED:
                row.retried += 1
            case Fate.MASKED:
                row.masked += 1
            case Fate.DROPPED:
                row.dropped += 1
        fact = self.evidence.advantages.get(trace.id)
        row.refills += fact is not None and trace.head.member >= fact.scheduled
        if row.lost == 1 and not row.lost_first:
            row.lost_first = trace.id

    def excesses(self) -> list[tuple[float, Facet, str]]:
        """(how much higher the share of lost attempts is than among the rest, facet, value), the highest first, where
        both have enough attempts and chance does not explain it."""
        attempts, lost = dict[Facet, int](), dict[Facet, int]()
        for (facet, _), row in self.rows.items():
            attempts[facet] = attempts.get(facet, 0) + row.attempts
            lost[facet] = lost.get(facet, 0) + row.lost
        found = [
            (higher, facet, value)
            for (facet, value), row in self.rows.items()
            if (higher := _excess(row, attempts[facet] - row.attempts, lost[facet] - row.lost)) is not None
        ]
        return sorted(found, key=lambda each: -each[0])


def _excess(row: SelectionCount, attempts: int, lost: int) -> float | None:
    """`attempts`, `lost`: of the rest."""
    if row.attempts < LEAST or attempts < LEAST:
        return None
    pooled = (row.lost + lost) / (row.attempts + attempts)
    error = math.sqrt(pooled * (1 - pooled) * (1 / row.attempts + 1 / attempts))
    higher = row.lost / row.attempts - lost / attempts
    return higher if higher > CHANCE * error else None


class Selection:
    """The largest excess of lost attempts in one task, length, last tool or version."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.ledger = findings, SelectionLedger(evidence)

    def see(self, trace: Trace) -> None:
        self.ledger.see(trace)

    def finish(self) -> Measure:
        ledger = self.ledger
        if not ledger.whole.attempts:
            return Measure.none("no disposition was recorded", undecided=ledger.undecided)
        found = ledger.excesses()
        for excess, facet, value in found:
            row = ledger.rows[facet, value]
            text = f"{facet} {value}: {row.lost} of {row.attempts} attempts lost, {excess:.0%} more than elsewhere"
            self.findings.add_for(row.lost_first, text)
        whole = ledger.whole
        return Measure(
            value=max((excess for excess, *_ in found), default=0.0),
            n=whole.attempts,
            details={
                "used": whole.used,
                "retried": whole.retried,
                "dropped": whole.dropped,
                "masked": whole.masked,
                "stale": whole.stale,
                "refills": whole.refills,
                "undecided": ledger.undecided,
            },
        )


class StaleDropped:
    """Share of the rollouts with a known staleness that the bound took out."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.taken = self.dropped = 0
        self.tasks: set[str] = set()

    def see(self, trace: Trace) -> None:
        stale = self.evidence.staleness.get(trace.id)
        if stale is None or stale.taken is None:
            return
        self.taken += 1
        if stale.dropped:
            self.dropped += 1
            self.tasks.add(trace.head.task.id)
            rule = self.evidence.dispositions.get(trace.id)
            self.findings.add(trace, f"task {trace.head.task.id!a}: {rule.rule if rule else 'dropped as too stale'}")

    def finish(self) -> Measure:
        nothing = "no rollout waited for a trainer: the run was no stream"
        return Measure.share(self.dropped, self.taken, nothing, tasks_hit=len(self.tasks))


class StalestUsed:
    """The staleness of the stalest rollout that was handed to a trainer."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.flight, self.queue = list[float](), list[float]()
        self.worst = -math.inf
        self.unknown = 0

    def see(self, trace: Trace) -> None:
        stale = self.evidence.staleness.get(trace.id)
        if stale is None or stale.taken is None or self.evidence.no_vote(trace) is not None:
            return
        if stale.in_flight is None or stale.in_queue is None:
            self.unknown += 1
            return
        self.flight.append(stale.in_flight)
        self.queue.append(stale.in_queue)
        total = stale.in_flight + stale.in_queue
        if total > max(self.worst, 0):
            text = f"{total:g} behind: {stale.in_flight:g} in flight, {stale.in_queue} in queue, by {stale.by}"
            self.findings.add(trace, text)
        self.worst = max(self.worst, total)

    def finish(self) -> Measure:
        n = len(self.flight)
        if not n:
            why = "the engine did not say which versions it sampled from" if self.unknown else "no trainer took any"
            return Measure.none(why, unknown=self.unknown)
        means = {"in_flight_mean": math.fsum(self.flight) / n, "in_queue_mean": math.fsum(self.queue) / n}
        return Measure(value=max(self.worst, 0.0), n=n, details={**means, "unknown": self.unknown})
