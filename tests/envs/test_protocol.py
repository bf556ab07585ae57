"""The environment's defaults, and what a step may say."""

from __future__ import annotations

import asyncio
import math
from typing import Any

import numpy as np
import pytest

from rollbook.envs.protocol import Environment, StepResult
from rollbook.errors import RecordError, UsageError
from rollbook.trace.ending import Ending, EndingKind, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task

REPLY = Message(role=Role.ASSISTANT, content="hi")


def test_the_defaults_are_one_turn_without_a_reward() -> None:
    async def defaults() -> list[object]:
        env = Environment()
        first = await env.setup(Task(id="t", prompt="hello"))
        return [first, await env.step(REPLY), await env.final_state(), await env.cleanup()]

    assert asyncio.run(defaults()) == [(Message(role=Role.USER, content="hello"),), None, None, None]


def test_tasks_have_no_default() -> None:
    with pytest.raises(UsageError, match="Environment has no tasks"):
        Environment().tasks(1)


@pytest.mark.parametrize("reward", [math.nan, math.inf, -math.inf, 1e39, 10**400])
def test_a_step_reward_is_finite(reward: float) -> None:
    with pytest.raises(RecordError, match="must be finite"):
        StepResult("", reward)
    assert StepResult("", -0.5).reward == -0.5


@pytest.mark.parametrize("reward", [np.float32(0.5), np.int64(1), True, 2**70])
def test_a_step_reward_is_a_plain_float_whatever_number_was_given(reward: Any) -> None:
    kept = StepResult("", reward).reward
    assert type(kept) is float
    assert kept == reward


def test_an_ending_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(RecordError, match="cannot be stored"):
        StepResult("", None, Ending(Reason.GOAL_REACHED, 5))  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("reason", list(Reason))
def test_an_environment_ends_a_rollout_by_an_outcome_only(reason: Reason) -> None:
    if reason.kind in (EndingKind.SUBMITTED, EndingKind.DETECTED):
        assert StepResult("", None, Ending(reason)).ending == Ending(reason)
    else:
        with pytest.raises(RecordError, match="submitted or detected"):
            StepResult("", None, Ending(reason))
