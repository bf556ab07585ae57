"""Scoring a group as a whole when it closes, before anything is computed from its rewards.

The traces are sealed by then, so what they are given is kept as annotations: the reward of each, and what judges were
asked, at the rollouts that it was about. It happens where the scheduler is, whoever ran the attempts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollbook.envs.foreign import clean_up
from rollbook.rewards import Outcome, decide, outcome_of
from rollbook.rewards.dispositions import PRODUCER
from rollbook.rewards.group_scoring import compared, score_group
from rollbook.rewards.scorers.judgement import Judgement
from rollbook.rollout.judging import judging
from rollbook.rollout.limits import Limits
from rollbook.rollout.pool.orders import EnvFactory
from rollbook.rollout.resources import Resources
from rollbook.trace import Annotation, EndingRules, Fate, Trace
from rollbook.trace.facts import REWARD, Reward
from rollbook.trace.rescored import rescored

__all__ = ["JUDGED", "EnvGroupScoring", "GroupScores", "GroupScoring", "reward_annotations"]

JUDGED = "judged"
"""Name of the annotation that holds what judges were asked about a rollout when its group closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupScores:
    """What scoring a group came to."""

    rewards: dict[str, Reward] = field(default_factory=dict[str, Reward])
    """By rollout, of those that were compared; empty where the environment said nothing."""
    outcomes: dict[str, Outcome] = field(default_factory=dict[str, Outcome])
    """The rows of the same, with what becomes of them now."""
    judged: tuple[Judgement, ...] = ()


GroupScoring = Callable[[Sequence[Outcome]], Awaitable[GroupScores]]
"""Scores the attempts of a group that closes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EnvGroupScoring:
    """By the environment's own `score_group`, in an instance that was never set up."""

    make_env: EnvFactory
    read: Callable[[str], Trace]
    """The sealed trace of a rollout; called in a thread."""
    rules: EndingRules
    limits: Limits
    resources: Resources
    _reading: asyncio.Lock = field(default_factory=asyncio.Lock, init=False)

    async def __call__(self, outcomes: Sequence[Outcome]) -> GroupScores:
        over = (Fate.RETRIED, Fate.MASKED)
        names = [each.rollout for each in outcomes if each.disposition.fate not in over]
        async with self._reading:  # one reader, one thread
            read = await asyncio.to_thread(self._traces, names)
        traces = [each for each in read if compared(each, self.rules)]
        async with self.resources.scoring.slot():
            with judging(self.resources.judge, self.resources.judge_policies) as judged:
                rewards = await self._score(traces)
        again = [rescored(trace, rewards[trace.id]) for trace in traces if trace.id in rewards]
        rows = {trace.id: outcome_of(trace, self.rules, decide(trace, self.rules)) for trace in again}
        return GroupScores(rewards=rewards, outcomes=rows, judged=tuple(judged))

    def _traces(self, names: Sequence[str]) -> list[Trace]:
        return [self.read(name) for name in names]

    async def _score(self, traces: Sequence[Trace]) -> dict[str, Reward]:
        env = self.make_env()
        try:
            return await score_group(env, traces, seconds=self.limits.score_timeout)
        finally:
            await clean_up(env, self.limits.cleanup_timeout)


def reward_annotations(rewards: dict[str, Reward], judged: Sequence[Judgement]) -> list[Annotation]:
    """For a sink: the reward of each rollout, and what judges were asked about it."""
    asked: dict[str, list[Any]] = {}
    for judgement in judged:
        for rollout in judgement.rollouts:
            asked.setdefault(rollout, []).append(msgspec.to_builtins(judgement))
    given = [
        Annotation(producer=PRODUCER, name=REWARD, rollout=rollout, value=msgspec.to_builtins(reward))
        for rollout, reward in rewards.items()
    ]
    told = [Annotation(producer=PRODUCER, name=JUDGED, rollout=rollout, value=rows) for rollout, rows in asked.items()]
    return [*given, *told]
