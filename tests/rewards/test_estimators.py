"""Advantage estimators: numbers, float noise, ids."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.rewards.estimators import estimate, mean_baseline, mean_spread

REWARD = st.floats(-1e6, 1e6)
GROUP = st.dictionaries(st.text("abcdef", min_size=1, max_size=3), REWARD, max_size=8)


def test_the_mean_is_the_baseline() -> None:
    assert mean_baseline({"a": 1, "b": 0, "c": 0}) == pytest.approx({"a": 2 / 3, "b": -1 / 3, "c": -1 / 3})


def test_the_spread_is_the_sample_standard_deviation() -> None:
    found = mean_spread({"a": 1, "b": 0, "c": 0})
    assert {key: round(value, 3) for key, value in found.items()} == {"a": 1.155, "b": -0.577, "c": -0.577}


@pytest.mark.parametrize("estimator", [mean_baseline, mean_spread])
@pytest.mark.parametrize(
    "rewards",
    [{}, {"a": 5.0}, {"a": 0.0, "b": 0.0}, {"a": 0.1 + 0.2, "b": 0.3, "c": 0.3}, dict.fromkeys("abcdefg", 0.1)],
)
def test_constant_groups_give_exactly_zero(estimator: type[Mapping[str, float]], rewards: dict[str, float]) -> None:
    assert estimator(rewards) == dict.fromkeys(rewards, 0.0)


@settings(deadline=None)
@given(REWARD, st.integers(1, 9), st.data())
def test_float_noise_never_becomes_an_advantage(reward: float, size: int, data: st.DataObject) -> None:
    noise = [data.draw(st.integers(-3, 3)) for _ in range(size)]
    rewards = {str(n): reward + step * math.ulp(reward) for n, step in enumerate(noise)}
    if reward and abs(reward) > 1e-300:
        assert set(mean_spread(rewards).values()) == {0.0}


@settings(deadline=None)
@given(GROUP)
def test_advantages_sum_to_nothing_and_keep_the_order_of_rewards(rewards: dict[str, float]) -> None:
    found = mean_baseline(rewards)
    assert found.keys() == rewards.keys()
    assert abs(sum(found.values())) <= 1e-6 * max([1.0, *map(abs, rewards.values())])
    if any(found.values()):
        best = max(rewards, key=lambda key: rewards[key])
        assert found[best] == max(found.values())


@settings(deadline=None)
@given(GROUP, st.randoms(use_true_random=False))
def test_the_order_of_members_changes_nothing(rewards: dict[str, float], shuffler: random.Random) -> None:
    keys = list(rewards)
    shuffler.shuffle(keys)
    assert mean_baseline({key: rewards[key] for key in keys}) == mean_baseline(rewards)
    assert mean_spread({key: rewards[key] for key in keys}) == pytest.approx(mean_spread(rewards))


@settings(deadline=None)
@given(GROUP)
def test_spread_is_finite_and_has_unit_deviation(rewards: dict[str, float]) -> None:
    found = list(mean_spread(rewards).values())
    assert all(map(math.isfinite, found))
    if any(found):
        assert math.hypot(*found) / math.sqrt(len(found) - 1) == pytest.approx(1.0)


@pytest.mark.parametrize(
    ("given_back", "problem"),
    [
        ({"c": 1.0, "a": -1.0}, r"left out \['b'\]"),
        ({"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}, r"made up \['d'\]"),
        ({"a": 0.0, "b": math.nan, "c": 0.0}, r"no finite number for \['b'\]"),
    ],
)
def test_an_estimator_is_held_to_its_ids(given_back: dict[str, float], problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        estimate(lambda rewards: given_back, {"a": 1.0, "b": 0.0, "c": 0.5})


def test_an_estimator_may_answer_in_any_order_and_cannot_change_its_input() -> None:
    rewards = {"a": 1.0, "b": 0.0}

    def reverse(given: Mapping[str, float]) -> dict[str, float]:
        found = {key: given[key] * 2 for key in reversed(list(given))}
        assert isinstance(given, dict)
        given.clear()
        return found

    assert list(estimate(reverse, rewards).items()) == [("a", 2.0), ("b", 0.0)]
