"""What a worker says of itself while it runs, and how what many say adds up. Plain data, no clock.

Rules: every count is since the worker began, so the last snapshot says all and a lost one costs nothing; a worker that
is gone keeps its counts and has nothing in flight; adding snapshots up in any order gives the same.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeVar

import msgspec

from rollbook.rollout.histogram import SECONDS, TOKENS, Histogram
from rollbook.rollout.limiter import LimiterStats
from rollbook.rollout.phase import Phase
from rollbook.trace import Reason

__all__ = ["Calls", "Snapshot", "add_limiters", "add_snapshots", "gone"]

_Key = TypeVar("_Key", bound=str)


class Calls(msgspec.Struct, kw_only=True):
    """The requests to the engine."""

    seconds: Histogram = msgspec.field(default_factory=lambda: Histogram(bounds=SECONDS))
    """From request to reply."""
    first_token: Histogram = msgspec.field(default_factory=lambda: Histogram(bounds=SECONDS))
    """Queue and prefill, where the engine reports both."""
    prompt_tokens: Histogram = msgspec.field(default_factory=lambda: Histogram(bounds=TOKENS))
    """Where the engine counts them."""
    sampled_tokens: Histogram = msgspec.field(default_factory=lambda: Histogram(bounds=TOKENS))
    failed: int = 0
    """That gave nothing."""
    repeated: int = 0
    """Tries behind the first, over all calls."""

    def copy(self) -> Calls:
        """The counts so far."""
        return self.plus(Calls())

    def plus(self, other: Calls) -> Calls:
        """Both together."""
        return Calls(
            seconds=self.seconds.plus(other.seconds),
            first_token=self.first_token.plus(other.first_token),
            prompt_tokens=self.prompt_tokens.plus(other.prompt_tokens),
            sampled_tokens=self.sampled_tokens.plus(other.sampled_tokens),
            failed=self.failed + other.failed,
            repeated=self.repeated + other.repeated,
        )


class Snapshot(msgspec.Struct, frozen=True, kw_only=True):
    """How things stand in one worker, or in several together."""

    phases: dict[Phase, int] = {}
    """Rollouts in flight by what they are doing; a phase that nobody is in may be left out."""
    started: int = 0
    """Rollouts that began."""
    endings: dict[Reason, int] = {}
    """Rollouts that are over, by how they ended."""
    turns: int = 0
    """Replies that were recorded."""
    tokens: int = 0
    """Sampled tokens."""
    tool_calls: int = 0
    """Tool calls that executed."""
    rewarded: int = 0
    """Rollouts with a reward."""
    rewards: float = 0.0
    """Their rewards, added up."""
    oldest: float | None = None
    """When the oldest rollout in flight began, Unix seconds; None: nothing is in flight."""
    calls: Calls = msgspec.field(default_factory=Calls)
    limiters: tuple[LimiterStats, ...] = ()
    lag: Histogram = msgspec.field(default_factory=lambda: Histogram(bounds=SECONDS))
    """Lateness of the event loops, in seconds."""

    @property
    def in_flight(self) -> int:
        """Rollouts that run."""
        return sum(self.phases.values())

    @property
    def finished(self) -> int:
        """Rollouts that are over."""
        return sum(self.endings.values())


def add_snapshots(snapshots: Iterable[Snapshot]) -> Snapshot:
    """How things stand in all of them together."""
    return functools.reduce(_both, snapshots, Snapshot())


def gone(last: Snapshot) -> Snapshot:
    """What is left of a worker that is no more, by its last snapshot."""
    limiters = tuple(msgspec.structs.replace(each, in_use=0, waiting=0) for each in last.limiters)
    return msgspec.structs.replace(last, phases={}, oldest=None, limiters=limiters)


def _both(one: Snapshot, other: Snapshot) -> Snapshot:
    oldest = [each.oldest for each in (one, other) if each.oldest is not None]
    return Snapshot(
        phases=_sum(one.phases, other.phases),
        started=one.started + other.started,
        endings=_sum(one.endings, other.endings),
        turns=one.turns + other.turns,
        tokens=one.tokens + other.tokens,
        tool_calls=one.tool_calls + other.tool_calls,
        rewarded=one.rewarded + other.rewarded,
        rewards=one.rewards + other.rewards,
        oldest=min(oldest, default=None),
        calls=one.calls.plus(other.calls),
        limiters=add_limiters((*one.limiters, *other.limiters)),
        lag=one.lag.plus(other.lag),
    )


def _sum(one: Mapping[_Key, int], other: Mapping[_Key, int]) -> dict[_Key, int]:
    return dict(Counter(one) + Counter(other))


def add_limiters(stats: Iterable[LimiterStats]) -> tuple[LimiterStats, ...]:
    """One row per resource, in the order in which they first come. The peaks are added up, so that of several workers
    together is an upper bound; the longest pause is theirs, for all are paused together."""
    rows: dict[str, LimiterStats] = {}
    for each in stats:
        row = rows.get(each.name)
        rows[each.name] = each if row is None else _limiter(row, each)
    return tuple(rows.values())


def _limiter(one: LimiterStats, other: LimiterStats) -> LimiterStats:
    return LimiterStats(
        name=one.name,
        limit=None if one.limit is None or other.limit is None else one.limit + other.limit,
        in_use=one.in_use + other.in_use,
        waiting=one.waiting + other.waiting,
        peak=one.peak + other.peak,
        entered=one.entered + other.entered,
        waited=one.waited + other.waited,
        paused=max(one.paused, other.paused),
    )
