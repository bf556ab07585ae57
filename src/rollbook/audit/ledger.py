"""Tokens captured against tokens trained, with the reason for each loss.

What is counted is what an export without a length limit would train.
"""

from __future__ import annotations

from rollbook.audit.logprobs import NO_TOKENS
from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.sample import TokenLedger, samples
from rollbook.trace.trace import Trace

__all__ = ["TokensLost"]


class TokensLost:
    """Share of sampled tokens that no sample trains."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.ledger = TokenLedger()
        self.samples = 0

    def see(self, trace: Trace) -> None:
        if not trace.head.tokens:
            return
        built = samples(trace, disposition=self.evidence.dispositions.get(trace.id))
        self.samples += len(built)
        self.ledger += built.ledger
        for reason, count in built.ledger.lost.items():
            self.findings.add(trace, f"{count} of {built.ledger.captured} sampled tokens lost: {reason}")

    def finish(self) -> Measure:
        lost = {f"lost_{reason}": count for reason, count in sorted(self.ledger.lost.items())}
        return Measure.share(
            self.ledger.captured - self.ledger.trained,
            self.ledger.captured,
            NO_TOKENS,
            captured=self.ledger.captured,
            trained=self.ledger.trained,
            samples=self.samples,
            **lost,
        )
