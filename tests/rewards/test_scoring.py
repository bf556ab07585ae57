"""Scoring: what a scorer may give, and that nothing it does touches the ending."""

from __future__ import annotations

import asyncio
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from rollbook.envs.protocol import Environment, Rewards
from rollbook.errors import RecordError
from rollbook.rewards.scoring import score_trace
from rollbook.trace.ending import Ending, Reason, RolloutFailure
from rollbook.trace.record import Scoring, ScoringStatus, TurnReward
from rollbook.trace.trace import Trace
from tests.rewards.made import ended


class Gives(Environment):
    """Its scorer gives what it is told, or raises it."""

    def __init__(self, given: Any) -> None:
        self.given = given

    async def score(self, trace: Trace) -> Any:
        if isinstance(self.given, BaseException):
            raise self.given
        return self.given


class Hangs(Environment):
    async def score(self, trace: Trace) -> float:
        await asyncio.Event().wait()
        return 1.0


class NotAsync(Environment):
    def score(self, trace: Trace) -> Any:
        return 1.0


def scored(env: Environment, trace: Trace | None = None, **options: Any) -> Trace:
    trace = ended("r") if trace is None else trace
    asyncio.run(score_trace(env, trace, **options))
    return trace


@pytest.mark.parametrize(
    ("given", "reward"),
    [
        (1.0, 1.0),
        (0, 0.0),
        (True, 1.0),
        (False, 0.0),
        (np.float32(0.5), 0.5),
        (np.int64(2), 2.0),
        (np.bool_(True), 1.0),
        (Fraction(1, 4), 0.25),
        (Rewards(0.5), 0.5),
        (Rewards(True), 1.0),
    ],
)
def test_numbers_are_rewards(given: Any, reward: float) -> None:
    trace = scored(Gives(given))
    assert trace.reward == reward
    assert type(trace.reward) is float
    assert trace.tail.scoring == Scoring(ScoringStatus.SCORED)


def test_parts_and_metrics_are_kept_and_metrics_are_no_reward() -> None:
    trace = ended("r")
    trace.update(metrics={"turns": 3.0})
    scored(Gives(Rewards(0.5, {"right": True}, {"length": 7})), trace)
    assert (trace.reward, trace.tail.reward_parts) == (0.5, {"right": 1.0})
    assert trace.tail.metrics == {"turns": 3.0, "length": 7.0}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        (ValueError("no\njudge"), "ValueError: no judge"),
        (RolloutFailure(Reason.SANDBOX_LOST, "gone"), "error/sandbox_lost: gone"),
        (math.nan, "the scorer's reward is not finite: nan"),
        (math.inf, "the scorer's reward is not finite: inf"),
        (1e39, "a reward is not finite as a float32"),
        (10**400, "the scorer's reward is not finite: inf"),
        ("1.0", "the scorer's reward is no number but a str"),
        ([1.0], "the scorer's reward is no number but a list"),
        (1j, "the scorer's reward is no number but a complex"),
        (Rewards(math.nan), "the scorer's total is not finite: nan"),
        (Rewards(1.0, {"a": math.inf}), "the scorer's part 'a' is not finite: inf"),
        (Rewards(1.0, {}, {"m": math.nan}), "the scorer's metric 'm' is not finite: nan"),
        (Rewards(1.0, {"a": None}), "the scorer's part 'a' is no number but a NoneType"),  # type: ignore[dict-item]
    ],
)
def test_a_failing_scorer_leaves_the_ending_and_no_reward(given: Any, reason: str) -> None:
    trace = ended("r", reason=Reason.MAX_TURNS)
    turn = TurnReward(int(trace.policy_nodes[0]), 0.5)
    scored(Gives(given), trace, turn_rewards=[turn])
    assert trace.ending == Ending(Reason.MAX_TURNS)
    assert trace.tail.scoring == Scoring(ScoringStatus.FAILED, reason)
    assert (trace.reward, trace.tail.reward_parts, trace.tail.metrics) == (None, {}, {})


@pytest.mark.parametrize("names", [{1: 0.5}, {None: 0.5}, {("a", "b"): 0.5}])
def test_parts_and_metrics_are_named_by_text(names: Any) -> None:
    """A name that is no text could be written, and never read back."""
    for given in (Rewards(1.0, parts=names), Rewards(1.0, metrics=names)):
        trace = scored(Gives(given))
        assert (trace.reward, trace.tail.scoring.status) == (None, ScoringStatus.FAILED)
        assert "not named by text" in trace.tail.scoring.reason


def test_a_scorer_that_hangs_fails_and_one_that_is_not_async_scores() -> None:
    assert scored(Hangs(), seconds=0.01).tail.scoring.reason == "did not return within 0.01 s"
    assert scored(NotAsync()).reward == 1.0


def test_no_scorer_leaves_it_pending_and_absent_is_not_zero() -> None:
    trace = scored(Environment())
    assert (trace.reward, trace.tail.scoring.status) == (None, ScoringStatus.PENDING)
    told = scored(Gives(Rewards(None, {"style": 0.5})))
    assert (told.reward, told.tail.scoring.status) == (None, ScoringStatus.SCORED)


def test_step_rewards_are_kept_and_are_the_reward_where_there_is_no_scorer() -> None:
    trace = ended("r")
    turn = int(trace.policy_nodes[0])
    rewards = (TurnReward(turn, 0.25), TurnReward(turn, 0.5))
    scored(Environment(), trace, turn_rewards=rewards)
    assert (trace.reward, trace.tail.turn_rewards) == (0.75, rewards)
    other = ended("r2")
    scored(Gives(1.0), other, turn_rewards=rewards)
    assert (other.reward, other.tail.turn_rewards) == (1.0, rewards)


def test_a_step_reward_of_no_turn_fails_the_scoring() -> None:
    trace = scored(Gives(1.0), turn_rewards=[TurnReward(0, 1.0)])
    assert (trace.reward, trace.tail.scoring.status) == (None, ScoringStatus.FAILED)


def test_only_ended_and_open_traces_are_scored() -> None:
    sealed = ended("r", 0.5)
    sealed.seal()
    for trace, problem in ((sealed, "is sealed"), (ended("r", reason=None), "has no ending")):
        with pytest.raises(RecordError, match=problem):
            scored(Gives(1.0), trace)
    assert sealed.reward == 0.5


def test_cancellation_passes() -> None:
    trace = ended("r")

    async def main() -> None:
        task = asyncio.create_task(score_trace(Hangs(), trace))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert trace.tail.scoring.status is ScoringStatus.PENDING
