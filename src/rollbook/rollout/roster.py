"""The rollouts that a worker has in flight, and counts over those that it is done with.

Nothing is told to the roster while a rollout runs: it looks at what the rollout holds itself, when it is asked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from time import time

from rollbook.rollout.histogram import Histogram
from rollbook.rollout.limiter import LimiterStats
from rollbook.rollout.limits import Budget
from rollbook.rollout.phase import Phase, phase_of
from rollbook.rollout.snapshot import Calls, Snapshot
from rollbook.rollout.stopwatch import Stopwatch
from rollbook.trace import Call, Reason, Trace

__all__ = ["Roster"]


@dataclass(slots=True)
class _Running:
    trace: Trace
    budget: Budget
    watch: Stopwatch
    began: float
    calls: int = 0
    """Calls of it that were counted."""


class Roster:
    """Who is in flight. Belongs to one event loop."""

    def __init__(self) -> None:
        self._running: dict[str, _Running] = {}
        self._started = self._turns = self._tokens = self._tool_calls = self._rewarded = 0
        self._rewards = 0.0
        self._endings = Counter[Reason]()
        self._calls = Calls()

    def enter(self, trace: Trace, budget: Budget, watch: Stopwatch) -> None:
        """A rollout begins."""
        self._running[trace.id] = _Running(trace, budget, watch, time())
        self._started += 1

    def leave(self, trace: Trace) -> None:
        """It is over."""
        entry = self._running.pop(trace.id)
        self._count_calls(entry)
        self._turns += entry.budget.turns
        self._tokens += entry.budget.tokens
        self._tool_calls += entry.budget.tool_calls
        if trace.ending is not None:
            self._endings[trace.ending.reason] += 1
        if trace.reward is not None:
            self._rewarded += 1
            self._rewards += trace.reward

    def counts(self) -> tuple[int, int]:
        """(in flight, over)."""
        return len(self._running), self._endings.total()

    def snapshot(self, limiters: Iterable[LimiterStats], lag: Histogram) -> Snapshot:
        """How things stand."""
        running = self._running.values()
        phases = Counter[Phase]()
        turns, tokens, tool_calls = self._turns, self._tokens, self._tool_calls
        for entry in running:
            phases[phase_of(entry.watch.part)] += 1
            turns += entry.budget.turns
            tokens += entry.budget.tokens
            tool_calls += entry.budget.tool_calls
            self._count_calls(entry)
        first = next(iter(running), None)
        return Snapshot(
            phases=dict(phases),
            started=self._started,
            endings=dict(self._endings),
            turns=turns,
            tokens=tokens,
            tool_calls=tool_calls,
            rewarded=self._rewarded,
            rewards=self._rewards,
            oldest=None if first is None else first.began,
            calls=self._calls.copy(),
            limiters=tuple(limiters),
            lag=lag.copy(),
        )

    def _count_calls(self, entry: _Running) -> None:
        calls = entry.trace.calls
        for call in calls[entry.calls :]:
            _count(self._calls, call)
        entry.calls = len(calls)


def _count(calls: Calls, call: Call) -> None:
    calls.repeated += call.tries - 1
    if call.error is not None:
        calls.failed += 1
        return
    calls.seconds.add(call.wall)
    if call.queue is not None and call.prefill is not None:
        calls.first_token.add(call.queue + call.prefill)
    if call.prompt_tokens is not None:
        calls.prompt_tokens.add(call.prompt_tokens)
    if call.completion_tokens is not None:
        calls.sampled_tokens.add(call.completion_tokens)
