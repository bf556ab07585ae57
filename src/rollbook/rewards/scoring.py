"""Scoring one ended trace with its environment's scorer.

Rules: the ending is never touched. A scorer that raises, takes too long or returns what is not a finite number leaves
the scoring status ``failed`` with its reason, and the rollout has no reward and no vote. ``True`` and ``False`` count
as 1 and 0. A scorer that is a plain function runs in a thread, so that one which computes holds no other rollout up;
nothing can stop it at the end of its time, but its late result does not count. A scorer that returns None says
nothing, and the status stays ``pending``; where the environment gave step rewards, their sum is then the reward.
Rewards that the scorer gives to single turns stand behind the step rewards, each bound to the turn that it names.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import cast

import numpy as np

from rollbook.envs.foreign import ForeignError, call_foreign, one_line
from rollbook.envs.protocol import Environment, Rewards
from rollbook.envs.scorer import call_scorer
from rollbook.errors import RecordError, RollbookError
from rollbook.trace.record import TurnReward
from rollbook.trace.trace import Trace

__all__ = ["read_rewards", "score_trace"]


async def score_trace(
    env: Environment,
    trace: Trace,
    *,
    turn_rewards: Sequence[TurnReward] = (),
    seconds: float | None = None,
) -> None:
    """Score `trace`, which has ended and is not sealed, and keep the result in it.

    `turn_rewards`: the step rewards that tools and `step` gave. `seconds`: its time, None for no limit. Raises
    `RecordError` for a trace that still runs or is sealed; a failing scorer raises nothing. Cancellation passes.
    """
    if trace.sealed or trace.ending is None:
        raise RecordError(f"trace {trace.id} {'is sealed' if trace.sealed else 'has no ending'}; it cannot be scored")
    try:
        given = await call_foreign(seconds, call_scorer, env, trace)
        rewards = read_rewards(given, turn_rewards)
        if rewards is not None:
            trace.score(rewards.total, rewards.parts, (*turn_rewards, *rewards.turns))
            trace.update(metrics={**trace.tail.metrics, **rewards.metrics})
    except RollbookError as error:
        trace.score_failed(one_line(str(error)))


def read_rewards(given: object, turn_rewards: Sequence[TurnReward]) -> Rewards | None:
    """What a scorer returned, held to its types; None: it said nothing, and there are no step rewards. Raises
    `ForeignError`."""
    match given:
        case None if not turn_rewards:
            return None
        case None:
            return Rewards(math.fsum(each.value for each in turn_rewards))
        case Rewards():
            total = None if given.total is None else _number(given.total, "total")
            return Rewards(total, _numbers(given.parts, "part"), _numbers(given.metrics, "metric"), _turns(given.turns))
        case _:
            return Rewards(_number(given, "reward"))


def _numbers(values: Mapping[str, object], what: str) -> dict[str, float]:
    named: Mapping[object, object] = {**values}
    numbers: dict[str, float] = {}
    for name, value in named.items():
        if not isinstance(name, str):
            raise ForeignError(f"the scorer's {what} {name!r} is not named by text")
        numbers[str.__str__(name)] = _number(value, f"{what} {name!r}")
    return numbers


def _turns(given: object) -> tuple[TurnReward, ...]:
    rewards = tuple(cast("Sequence[object]", given)) if isinstance(given, list | tuple) else (given,)
    if not all(isinstance(each, TurnReward) and type(each.node) is int for each in rewards):
        raise ForeignError("the scorer's turn rewards are no list of TurnReward(node, value)")
    bound = cast("tuple[TurnReward, ...]", rewards)
    return tuple(TurnReward(each.node, _number(each.value, f"reward of turn {each.node}")) for each in bound)


def _number(value: object, what: str) -> float:
    if not isinstance(value, Real | np.bool_):
        raise ForeignError(f"the scorer's {what} is no number but a {type(value).__name__}")
    try:
        number = float(cast("float", value))
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ForeignError(f"the scorer's {what} is not finite: {number}")
    return number
