"""What is equal, and means and spreads of what is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.rewards.estimators.statistics import centred, constant, deviation, normalised
from tests.rewards.estimators.made import REWARD

KEYS = st.dictionaries(st.integers(0, 20), REWARD, max_size=8)


@pytest.mark.parametrize("values", [[], [5.0], [0.0, 0.0], [0.1 + 0.2, 0.3], [3.4e38] * 3, [0.1] * 7])
def test_what_is_equal_but_for_float_error_is_constant(values: list[float]) -> None:
    assert constant(values)


@pytest.mark.parametrize("values", [[0.0, 1e-30], [1.0, 1.001], [-1.0, 1.0], [1e6, 1e6 + 2.0], [5e-324, 0.0]])
def test_what_differs_is_not(values: list[float]) -> None:
    assert not constant(values)


def test_differences_of_large_numbers_have_their_noise() -> None:
    left = [0.3 - 0.1 - 0.2, 0.0]
    assert left[0] != left[1]
    assert not constant(left)
    assert constant(left, noise=1e-6)


@settings(deadline=None)
@given(REWARD, st.integers(1, 9), st.data())
def test_float_noise_never_makes_a_spread(reward: float, size: int, data: st.DataObject) -> None:
    for dtype in (np.float64, np.float32):
        exact = dtype(reward)
        steps = [data.draw(st.integers(-3, 3)) for _ in range(size)]
        rewards = {n: float(exact + step * np.spacing(exact)) for n, step in enumerate(steps)}
        if abs(exact) > 1e-30:
            assert set(normalised(rewards).values()) == {0.0}


def test_sums_in_float32_are_equal_to_the_same_in_float64() -> None:
    single = np.float32(0.0)
    for _ in range(10):
        single += np.float32(0.1)
    rewards = {"a": float(single), "b": 1.0, "c": math.fsum([0.1] * 10)}
    assert len(set(rewards.values())) > 1
    assert set(normalised(rewards).values()) == {0.0}


@settings(deadline=None)
@given(KEYS)
def test_centred_sums_to_nothing_and_keeps_the_order(rewards: dict[int, float]) -> None:
    found = centred(rewards)
    assert found.keys() == rewards.keys()
    assert abs(sum(found.values())) <= 1e-6 * max([1.0, *map(abs, rewards.values())])
    if any(found.values()):
        best = max(rewards, key=lambda key: rewards[key])
        assert found[best] == max(found.values())


@settings(deadline=None)
@given(KEYS)
def test_normalised_has_unit_deviation_and_a_bound(rewards: dict[int, float]) -> None:
    found = list(normalised(rewards).values())
    assert all(map(math.isfinite, found))
    if any(found):
        assert deviation(found) == pytest.approx(1.0)
        assert max(map(abs, found)) <= (len(found) - 1) / math.sqrt(len(found)) * (1 + 1e-9)


def test_who_stands_on_the_mean_has_exactly_nothing() -> None:
    assert centred({"a": 0.0, "b": -0.1, "c": -0.2})["b"] == 0.0
    assert centred({"a": 0.0, "b": 0.5 + 1e-9, "c": 1.0})["b"] != 0.0
