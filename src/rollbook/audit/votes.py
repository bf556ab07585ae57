"""Votes: which rollouts enter their group's statistics, and with it a trainer's batch."""

from __future__ import annotations

from collections import Counter

from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.trace import Trace

__all__ = ["NoVote"]


class NoVote:
    """Share of rollouts that have no vote; 1: there is nothing to train."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.rollouts = 0
        self.without = Counter[str]()

    def see(self, trace: Trace) -> None:
        self.rollouts += 1
        why = self.evidence.no_vote(trace)
        if why is not None:
            self.without[why] += 1
            self.findings.add(trace, why)

    def finish(self) -> Measure:
        return Measure.share(self.without.total(), self.rollouts, "the batch holds no rollout", **self.without)
