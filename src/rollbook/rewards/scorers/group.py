"""Group scorers: rewards that come of comparing the attempts of one group, for `Environment.score_group`.

Each is an async function of the attempts that gives every one of them a reward, by rollout id. A group of one has
nobody to be compared with, so comparing fails there: the attempt has no reward, which is not 0.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from rollbook.envs.protocol import Rewards
from rollbook.errors import first_cause
from rollbook.rewards.scorers.judge import Judge
from rollbook.rewards.scorers.scorer import Scorer, ScoringFailed
from rollbook.rewards.scorers.verdict import transcript
from rollbook.trace.trace import Trace

__all__ = ["Compare", "GroupScorer", "judged_pairs", "pairwise", "ranked"]


class GroupScorer(Protocol):
    """Scores the attempts of one group, all of them or none."""

    async def __call__(self, traces: Sequence[Trace], /) -> Mapping[str, float | Rewards]:
        """A reward for each rollout. Raises `ScoringFailed` where it cannot tell; then nobody has one."""
        ...


Compare = Callable[[Trace, Trace], Awaitable[float]]
"""From 0 to 1: 1 where the first attempt is better, 0 where the second is, 0.5 where they are alike."""


def ranked(scorer: Scorer) -> GroupScorer:
    """Each attempt's share of the others that it beats by what `scorer` gives it: 1 for the best, 0 for the worst; who
    is alike counts as half. What the scorer gives becomes the part ``score``."""

    async def score(traces: Sequence[Trace], /) -> dict[str, float | Rewards]:
        _several(traces)
        values = {trace.id: await _value(scorer, trace) for trace in traces}
        others = len(traces) - 1
        found: dict[str, float | Rewards] = {}
        for rollout, value in values.items():
            beaten = sum(0.5 if each == value else float(each < value) for each in values.values()) - 0.5
            found[rollout] = Rewards(beaten / others, parts={"score": value})
        return found

    return score


def pairwise(compare: Compare) -> GroupScorer:
    """The mean of each attempt's comparisons with all others. Each pair is compared in both orders, so that a liking
    for one place cancels out; all run side by side."""

    async def score(traces: Sequence[Trace], /) -> dict[str, float | Rewards]:
        _several(traces)
        pairs = list(itertools.permutations(traces, 2))
        try:
            async with asyncio.TaskGroup() as tasks:
                asked = [tasks.create_task(_compared(compare, first, second)) for first, second in pairs]
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        won: dict[str, list[float]] = {trace.id: [] for trace in traces}
        for (first, second), task in zip(pairs, asked, strict=True):
            won[first.id].append(task.result())
            won[second.id].append(1.0 - task.result())
        return {rollout: math.fsum(shares) / len(shares) for rollout, shares in won.items()}

    return score


def judged_pairs(judge: Judge) -> GroupScorer:
    """Pairs compared by a judge, who is shown task and both attempts as JSON. Its `low` and `high` must be 0 and 1: it
    is asked for 1 where ``first`` is better, 0 where ``second`` is."""

    async def compare(first: Trace, second: Trace) -> float:
        return await judge.ask((first.id, second.id), lambda: _both(first, second))

    return pairwise(compare)


def _both(first: Trace, second: Trace) -> str:
    shown = {"first": json.loads(transcript(first)), "second": json.loads(transcript(second))}
    asked = "Which attempt is better? 1: the first. 0: the second. 0.5: neither."
    return f"{asked}\n{json.dumps(shown, ensure_ascii=False, indent=1)}"


async def _compared(compare: Compare, first: Trace, second: Trace) -> float:
    share = await compare(first, second)
    if not 0.0 <= share <= 1.0:
        raise ScoringFailed(f"comparing {first.id} with {second.id} gave {share}, which is not between 0 and 1")
    return share


async def _value(scorer: Scorer, trace: Trace) -> float:
    given = await scorer(trace)
    total = given.total if isinstance(given, Rewards) else given
    if total is None or not math.isfinite(total):
        raise ScoringFailed(f"the scorer gave {total} for {trace.id}, which has no rank")
    return float(total)


def _several(traces: Sequence[Trace]) -> None:
    if len(traces) < 2:
        raise ScoringFailed("one attempt alone has nobody to be compared with")
