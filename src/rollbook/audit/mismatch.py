"""Behaviour against trainer: how far the engine's logprobs and those of a trainer are apart on the tokens it trained.

What is judged is the trainer's own comparison (the annotation `rollbook.trace.facts.MISMATCH`); nothing is computed
here. The value is the mean of the absolute difference over all tokens that were compared, in nats.
"""

from __future__ import annotations

from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.trace import Trace

__all__ = ["TrainerMismatch"]

FAR = 1.0
"""A rollout with a token whose logprobs are further apart than so many nats is a finding."""


class TrainerMismatch:
    """The mean difference; the largest and the estimates of the divergence are in the details."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.tokens = self.unknown = self.rollouts = 0
        self.mean = self.k1 = self.k3 = self.most = 0.0

    def see(self, trace: Trace) -> None:
        row = self.evidence.mismatch.get(trace.id)
        if row is None:
            return
        self.unknown += row.unknown
        if row.mean is None or row.most is None:
            return
        self.rollouts += 1
        self.tokens += row.tokens
        self.mean += row.mean * row.tokens
        self.k1 += (row.k1 or 0.0) * row.tokens
        self.k3 += (row.k3 or 0.0) * row.tokens
        self.most = max(self.most, row.most)
        if row.most > FAR:
            self.findings.add(
                trace, f"a token whose logprobs are {row.most:.2f} nats apart, {row.mean:.3f} in the mean"
            )

    def finish(self) -> Measure:
        if not self.tokens:
            why = (
                "the engine gave no logprobs" if self.unknown else "no trainer compared its logprobs with the engine's"
            )
            return Measure.none(why, tokens_without_logprob=self.unknown)
        return Measure(
            value=self.mean / self.tokens,
            n=self.tokens,
            details={
                "most": self.most,
                "k1": self.k1 / self.tokens,
                "k3": self.k3 / self.tokens,
                "rollouts": self.rollouts,
                "tokens_without_logprob": self.unknown,
            },
        )
