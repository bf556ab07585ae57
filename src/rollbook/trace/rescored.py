"""A trace as it was scored again: the same messages and tokens, other rewards.

A sealed trace never changes; a later reward is an annotation (`rollbook.trace.facts.Reward`), and whoever reads rewards
reads them through here. The newest annotation counts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping

from rollbook.errors import RecordError, UsageError
from rollbook.trace.facts import Reward
from rollbook.trace.record import Scoring
from rollbook.trace.trace import Trace

__all__ = ["rescored", "rescored_all"]


def rescored(trace: Trace, reward: Reward | None) -> Trace:
    """The trace with the reward that it was given later; None: as it is. What it shares with `trace` is not copied.
    Raises `UsageError` for a reward that no such trace can have."""
    if reward is None:
        return trace
    again = dataclasses.replace(trace, sealed=False)
    try:
        again.update(
            reward=reward.total,
            reward_parts=reward.parts,
            turn_rewards=reward.turn_rewards,
            scoring=Scoring(reward.status, reward.reason),
        )
    except RecordError as error:
        raise UsageError(
            f"the reward that was annotated for rollout {trace.id} cannot be its own: {error}; score the run again"
        ) from error
    again.sealed = trace.sealed
    return again


def rescored_all(traces: Iterable[Trace], rewards: Mapping[str, Reward]) -> Iterator[Trace]:
    """Each trace, with its later reward where it has one."""
    return (rescored(trace, rewards.get(trace.id)) for trace in traces)
