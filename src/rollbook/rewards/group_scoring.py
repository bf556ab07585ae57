"""Scoring a group as a whole: its environment sees all attempts side by side and gives each a reward.

Rules. Seen are the attempts that would vote if they had a reward: an ending that is scored, a scorer of their own that
did not fail, a turn that trains. Nobody else is shown, so nobody else can move a rank. The answer names exactly these
rollouts; a number or `Rewards` takes the place of the reward that the attempt had, and step rewards stay. None says
nothing, and all stays as it was. What fails (an error, too long, a rollout left out or made up, no finite number, a
turn that is none) leaves each of them ``failed``, for a comparison that holds for some only is none.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Mapping, Sequence
from typing import cast

import msgspec

from rollbook.envs.foreign import ForeignError, call_foreign, one_line
from rollbook.envs.protocol import Environment
from rollbook.errors import RollbookError
from rollbook.rewards.dispositions import decide
from rollbook.rewards.scoring import read_rewards
from rollbook.trace.ending import EndingRules
from rollbook.trace.facts import Reward
from rollbook.trace.record import ScoringStatus
from rollbook.trace.rescored import rescored
from rollbook.trace.trace import Trace

__all__ = ["compared", "score_group", "scores_groups"]


def scores_groups(env: Environment) -> bool:
    """True for an environment that scores whole groups."""
    return type(env).score_group is not Environment.score_group


def compared(trace: Trace, rules: EndingRules) -> bool:
    """True for an ended attempt that a group scorer sees."""
    if trace.tail.scoring.status is ScoringStatus.FAILED:
        return False
    return decide(rescored(trace, Reward(total=0.0, status=ScoringStatus.SCORED)), rules).votes


async def score_group(env: Environment, traces: Sequence[Trace], *, seconds: float | None = None) -> dict[str, Reward]:
    """The rewards of ended attempts of one group, by rollout; empty where the environment says nothing of them.

    `seconds`: its time, None for no limit. A failing scorer raises nothing; cancellation passes.
    """
    if not traces:
        return {}
    try:
        given: object = await call_foreign(seconds, env.score_group, [_copy(trace) for trace in traces])
        return {} if given is None else _read(given, traces)
    except RollbookError as error:
        failed = Reward(total=None, status=ScoringStatus.FAILED, reason=f"group: {one_line(str(error))}")
        return {trace.id: failed for trace in traces}


def _copy(trace: Trace) -> Trace:
    """What the scorer does to it is lost."""
    return dataclasses.replace(trace, head=msgspec.structs.replace(trace.head, task=copy.deepcopy(trace.task)))


def _read(given: object, traces: Sequence[Trace]) -> dict[str, Reward]:
    if not isinstance(given, Mapping):
        raise ForeignError(f"score_group returned a {type(given).__name__}; return rewards by rollout id, or None")
    named = cast("Mapping[object, object]", given)
    ids = {trace.id for trace in traces}
    missing, unknown = sorted(ids - named.keys()), sorted(map(str, named.keys() - ids))
    if missing or unknown:
        raise ForeignError(f"score_group left out {missing} and made up {unknown}; it must keep the ids")
    return {trace.id: _one(named[trace.id], trace) for trace in traces}


def _one(given: object, trace: Trace) -> Reward:
    found = read_rewards(given, ())
    if found is None:
        raise ForeignError(f"score_group gave None for {trace.id}; give each a reward, or none of them")
    reward = Reward(
        total=found.total,
        parts=found.parts,
        turn_rewards=(*trace.tail.turn_rewards, *found.turns),
        status=ScoringStatus.SCORED,
    )
    rescored(trace, reward)  # raises for what the record would not hold
    return reward
