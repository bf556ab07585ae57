"""Scoring a stored run again, from what its traces keep and without running anything again.

Rules. Scored is what the run's rules score: rollouts of closed groups whose ending is not dropped or run again. The
scorer gets the trace as it stood before it was scored, in an environment of its own that was never set up, and what it
does to the trace is lost; rewards of single turns stay as the environment gave them. An environment that scores whole
groups is asked of each group again, behind its single attempts (`rollbook.run.rescore_groups`). A scorer that fails
takes the reward and the vote, as in a run. Nothing is written here (`rollbook.run.what_if.keep`).
"""

from __future__ import annotations

import asyncio
import copy
import dataclasses
from collections.abc import Callable
from typing import Any

import msgspec

from rollbook.envs import Environment
from rollbook.envs.foreign import clean_up
from rollbook.rewards import score_trace
from rollbook.rollout import Limits, Resources
from rollbook.rollout.judging import JudgeLoader, judging
from rollbook.run.rescore_groups import CLEANUP_SECONDS, whole_groups
from rollbook.run.standing import standing
from rollbook.store import RunReader
from rollbook.trace import Drop, EndingRules, Retry, Scoring, ScoringStatus, Trace, facts

__all__ = ["Rescored", "Scored", "rescore", "scored_by"]

AT_ONCE = 8
"""Traces that are scored at the same time."""


class Rescored(msgspec.Struct, frozen=True, kw_only=True):
    """What scoring again came to."""

    rewards: dict[str, facts.Reward]
    """By rollout, of all that were scored."""
    same: int
    """With the reward that counted before."""
    changed: int
    gained: int
    """That had no reward before, and now have one."""
    lost: int
    """That had a reward before, and now have none."""
    failed: int
    """Whose scorer failed; they are among the others too."""
    not_scored: int
    """Attempts that no rule scores, or of groups that are not closed."""


class _Limits(msgspec.Struct, frozen=True):
    score_timeout: float | None = Limits().score_timeout


class Scored(msgspec.Struct, frozen=True, kw_only=True):
    """By what a run was scored, as its configuration has it."""

    environment: str
    options: dict[str, Any] = {}
    limits: _Limits = _Limits()


def scored_by(source: RunReader) -> Scored | None:
    """By what the run was scored; None where its record does not say, as for imported traces."""
    try:
        return msgspec.convert(source.manifest.config.get("asked", {}), Scored)
    except msgspec.ValidationError:
        return None


def rescore(
    source: RunReader,
    make: Callable[[], Environment],
    rules: EndingRules,
    *,
    seconds: float | None = None,
    load_judge: JudgeLoader | None = None,
) -> Rescored:
    """Score a run's closed groups again. `make`: makes the environment of one trace. `seconds`: for one scorer; None:
    no limit. `load_judge`: loads a judge's policy by its name; None: none can be named. Raises
    `UsageError` where an environment cannot be made."""
    notes = source.annotations()
    closed = facts.advantages(notes)
    everything = not closed and standing(source) is None
    known = facts.rewards(notes)
    before = {row.rollout: row.reward for row in source.summaries()}
    before |= {rollout: each.total for rollout, each in known.items()}
    wanted = [
        row.rollout
        for row in source.summaries()
        if (everything or row.rollout in closed)
        and row.reason is not None
        and not isinstance(rules.rule(row.reason), Drop | Retry)
    ]
    found = asyncio.run(_with_judges(source, wanted, make, rules, seconds, load_judge))
    pairs = [(before[rollout], each.total) for rollout, each in found.items()]
    return Rescored(
        rewards=found,
        same=sum(old == new for old, new in pairs),
        changed=sum(old != new and old is not None and new is not None for old, new in pairs),
        gained=sum(old is None and new is not None for old, new in pairs),
        lost=sum(old is not None and new is None for old, new in pairs),
        failed=sum(each.status is ScoringStatus.FAILED for each in found.values()),
        not_scored=len(before) - len(found),
    )


async def _with_judges(
    source: RunReader,
    wanted: list[str],
    make: Callable[[], Environment],
    rules: EndingRules,
    seconds: float | None,
    load_judge: JudgeLoader | None,
) -> dict[str, facts.Reward]:
    async with Resources(load_judge=load_judge) as shared:
        with judging(shared.judge, shared.judge_policies):
            found = await _all(source, wanted, make, seconds)
            return found | await whole_groups(source, found, make, rules, seconds)


async def _all(
    source: RunReader, wanted: list[str], make: Callable[[], Environment], seconds: float | None
) -> dict[str, facts.Reward]:
    found: dict[str, facts.Reward] = {}
    for start in range(0, len(wanted), AT_ONCE):
        some = wanted[start : start + AT_ONCE]
        work = [(source.get(each), make()) for each in some]  # what fails here fails for all
        async with asyncio.TaskGroup() as tasks:
            running = {trace.id: tasks.create_task(_one(trace, env, seconds)) for trace, env in work}
        found |= {rollout: task.result() for rollout, task in running.items()}
    return found


async def _one(trace: Trace, env: Environment, seconds: float | None) -> facts.Reward:
    again = _unscored(trace)
    try:
        await score_trace(env, again, turn_rewards=trace.tail.turn_rewards, seconds=seconds)
    finally:
        await clean_up(env, CLEANUP_SECONDS)
    tail = again.tail
    return facts.Reward(
        total=tail.reward,
        parts=tail.reward_parts,
        turn_rewards=tail.turn_rewards,
        status=tail.scoring.status,
        reason=tail.scoring.reason,
    )


def _unscored(trace: Trace) -> Trace:
    """The trace as its scorer found it; the scorer may do to it what it will."""
    return dataclasses.replace(
        trace,
        head=msgspec.structs.replace(trace.head, task=copy.deepcopy(trace.task)),
        calls=list(trace.calls),
        edges=list(trace.edges),
        tail=msgspec.structs.replace(trace.tail, reward=None, reward_parts={}, turn_rewards=(), scoring=Scoring()),
        sealed=False,
    )
