"""A trace with a later reward."""

from __future__ import annotations

import pytest

from rollbook.errors import UsageError
from rollbook.trace import ScoringStatus, TurnReward
from rollbook.trace.facts import Reward
from rollbook.trace.rescored import rescored, rescored_all
from rollbook.trace.sample import samples
from tests.cases.case import attempt


def test_a_later_reward_takes_the_place_of_all_that_was_said() -> None:
    trace = attempt("r0", 1.0)
    trace.seal()
    reward = Reward(total=0.25, parts={"right": 0.25}, turn_rewards=(TurnReward(1, 0.125),))
    again = rescored(trace, reward)
    assert (again.reward, again.tail.reward_parts, again.tail.turn_rewards) == (0.25, reward.parts, reward.turn_rewards)
    assert (again.tail.scoring.status, again.sealed, again.graph is trace.graph) == (ScoringStatus.SCORED, True, True)
    assert (trace.reward, trace.tail.reward_parts, trace.sealed) == (1.0, {}, True)
    (sample,) = samples(again)
    assert (sample.reward, sample.reward_parts, sample.turn_rewards) == (0.25, {"right": 0.25}, ((0, 0.125),))


def test_a_failure_takes_the_reward() -> None:
    again = rescored(attempt("r0", 1.0), Reward(total=None, status=ScoringStatus.FAILED, reason="judge down"))
    assert (again.reward, again.tail.scoring.status, again.tail.scoring.reason) == (
        None,
        ScoringStatus.FAILED,
        "judge down",
    )


def test_without_a_later_reward_it_is_the_trace_itself() -> None:
    traces = [attempt("r0", 1.0), attempt("r1", 1.0)]
    found = list(rescored_all(traces, {"r1": Reward(total=0.0)}))
    assert found[0] is traces[0]
    assert found[1].reward == 0.0


@pytest.mark.parametrize(
    "reward",
    [
        Reward(total=1e39),
        Reward(total=float("nan")),
        Reward(total=1.0, turn_rewards=(TurnReward(0, 1.0),)),
        Reward(total=1.0, turn_rewards=(TurnReward(9, 1.0),)),
        Reward(total=1.0, status=ScoringStatus.FAILED),
    ],
)
def test_a_reward_that_no_such_trace_can_have_is_refused(reward: Reward) -> None:
    with pytest.raises(UsageError, match=r"annotated for rollout r0 cannot be its own.*score the run again"):
        rescored(attempt("r0", 1.0), reward)
