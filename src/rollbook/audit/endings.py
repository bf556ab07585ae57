"""Why rollouts ended, and whether they could be scored."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from rollbook.audit.measure import Findings, Measure
from rollbook.trace.ending import EndingKind, Reason
from rollbook.trace.record import ScoringStatus
from rollbook.trace.trace import Trace

__all__ = ["EndingMix", "RolloutRate", "ended_in_error", "scoring_failed", "truncated"]

_NOTHING = "the batch is empty"


class EndingMix:
    """Rollouts without an ending; the mix by kind and by reason is in the details."""

    def __init__(self, findings: Findings) -> None:
        self.findings = findings
        self.rollouts = self.without = 0
        self.kinds = Counter[str](dict.fromkeys(map(str, EndingKind), 0))
        self.reasons = Counter[str]()

    def see(self, trace: Trace) -> None:
        self.rollouts += 1
        if trace.ending is None:
            self.without += 1
            self.findings.add(trace, "has no ending")
            return
        self.kinds[str(trace.ending.kind)] += 1
        self.reasons[str(trace.ending)] += 1

    def finish(self) -> Measure:
        if not self.rollouts:
            return Measure.none(_NOTHING)
        return Measure.count(self.without, self.rollouts, **self.kinds, **dict(sorted(self.reasons.items())))


class RolloutRate:
    """Share of rollouts for which `told` gives a text."""

    def __init__(self, findings: Findings, told: Callable[[Trace], str | None]) -> None:
        self.findings, self.told = findings, told
        self.rollouts = self.hits = 0

    def see(self, trace: Trace) -> None:
        self.rollouts += 1
        text = self.told(trace)
        if text is not None:
            self.hits += 1
            self.findings.add(trace, text)

    def finish(self) -> Measure:
        return Measure.share(self.hits, self.rollouts, _NOTHING)


def ended_in_error(trace: Trace) -> str | None:
    """The ending, where its kind is ``error``. Not ``interrupted``: that a run was stopped and resumed says nothing of
    engine or environment."""
    ending = trace.ending
    broke = ending is not None and ending.kind is EndingKind.ERROR and ending.reason is not Reason.INTERRUPTED
    return _ending(trace) if broke else None


def truncated(trace: Trace) -> str | None:
    """The ending, where a budget or a limit made it."""
    return _ending(trace) if trace.ending is not None and trace.ending.truncated else None


def scoring_failed(trace: Trace) -> str | None:
    """The reason, where the scorer failed."""
    scoring = trace.tail.scoring
    return f"scoring failed: {scoring.reason[:200]}" if scoring.status is ScoringStatus.FAILED else None


def _ending(trace: Trace) -> str:
    detail = trace.ending.detail[:200] if trace.ending is not None else ""
    return f"{trace.ending}: {detail}" if detail else str(trace.ending)
