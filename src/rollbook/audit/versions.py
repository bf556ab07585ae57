"""Staleness within a rollout: over how many policy versions its sampled tokens spread."""

from __future__ import annotations

from rollbook.audit.logprobs import NO_TOKENS
from rollbook.audit.measure import Findings, Measure
from rollbook.trace.trace import Trace

__all__ = ["VersionSpan"]


class VersionSpan:
    """The widest span of versions in one rollout; 0 where each was sampled from one version."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.sampled = self.versioned = self.widest = self.spread = self.rollouts = 0
        self.lowest: int | None = None
        self.highest: int | None = None

    def see(self, trace: Trace) -> None:
        self.sampled += trace.graph.sampled_count
        versions = trace.graph.versions.view
        if not len(versions):
            return
        self.rollouts += 1
        self.versioned += int(versions[:, 1].sum())
        low, high = int(versions[:, 0].min()), int(versions[:, 0].max())
        self.lowest = low if self.lowest is None else min(self.lowest, low)
        self.highest = high if self.highest is None else max(self.highest, high)
        self.widest = max(self.widest, high - low)
        if high > low:
            self.spread += 1
            self.findings.add(trace, f"sampled from versions {low} to {high}")

    def finish(self) -> Measure:
        unknown = self.sampled - self.versioned
        if not self.rollouts:
            why = "the engine did not say which policy version it sampled from" if self.sampled else NO_TOKENS
            return Measure.none(why, tokens_without_version=unknown)
        return Measure(
            value=float(self.widest),
            n=self.rollouts,
            details={
                "version_min": self.lowest,
                "version_max": self.highest,
                "rollouts_spread": self.spread,
                "tokens_without_version": unknown,
            },
        )
