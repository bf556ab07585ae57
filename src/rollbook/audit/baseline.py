"""Rollouts that voted in their group's baseline and had no right to.

A rollout may vote unless its disposition says no, it ended in ``error``, its scoring failed or it has no reward. Who
made a baseline is read from the ``advantage`` annotations. A voter that is not in the batch cannot be judged:
unless something is found anyway, the whole check then has no answer.
"""

from __future__ import annotations

from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.trace import Trace

__all__ = ["BaselineErrors"]


class BaselineErrors:
    """Number of rollouts in a baseline that may not vote."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.baselines = {tuple(fact.values) for fact in evidence.advantages.values()}
        self.voters = {member for members in self.baselines for member in members}
        self.seen = set[str]()
        self.wrong = set[str]()

    def see(self, trace: Trace) -> None:
        if trace.id not in self.voters:
            return
        self.seen.add(trace.id)
        why = self.evidence.no_vote(trace)
        if why is not None and trace.id not in self.wrong:
            self.wrong.add(trace.id)
            self.findings.add(trace, f"entered a baseline, but {why}")

    def finish(self) -> Measure:
        if not self.baselines:
            return Measure.none("no advantages were computed: audit after the groups closed")
        unseen = self.voters - self.seen
        measure = Measure.count(len(self.wrong), len(self.voters), baselines=len(self.baselines), unseen=len(unseen))
        if unseen and not self.wrong:
            why = f"{len(unseen)} voters of baselines are not in this batch: audit the whole run"
            return Measure.none(why, **measure.details)
        return measure
