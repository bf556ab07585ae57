"""Turns that stood before the same state, compared."""

from __future__ import annotations

import math

import pytest

from rollbook.rewards.estimators.baselines import grpo
from rollbook.rewards.estimators.gigpo import gigpo
from tests.rewards.estimators.made import by_turns, turned

HALF = math.sqrt(0.5)
"""Two unequal rewards normalised."""


def test_turns_of_one_state_are_normalised_against_each_other() -> None:
    # returns, discounted by half a turn: a 0 + 1/2, 1; b 0 + 0, 0. State x: 1/2 and 0; y: only a, z: only b
    found = gigpo(
        [turned("a", None, None, outcome=1.0, states="xy"), turned("b", None, None, states="xz")], discount=0.5
    )
    assert found.values == pytest.approx({"a": HALF, "b": -HALF})
    assert by_turns(found.turns["a"]) == pytest.approx([2 * HALF, HALF])
    assert by_turns(found.turns["b"]) == pytest.approx([-2 * HALF, -HALF])


def test_a_state_may_be_met_twice_in_one_rollout() -> None:
    # a: returns 1/4, 1/2, 1 at the states x, x, y; b: 0 at x. Of x: the mean is 1/4, the spread 1/4
    found = gigpo([turned("a", None, None, 1.0, states="xxy"), turned("b", None, states="x")], discount=0.5, weight=2.0)
    assert by_turns(found.turns["a"]) == pytest.approx([HALF, HALF + 2.0, HALF])
    assert by_turns(found.turns["b"]) == pytest.approx([-HALF - 2.0])


def test_without_states_it_is_grpo() -> None:
    votes = [turned("a", None, outcome=1.0), turned("b", None)]
    found = gigpo(votes)
    assert found.values == grpo(votes).values
    assert by_turns(found.turns["a"]) == [found.values["a"]]


def test_returns_that_differ_by_rounding_are_equal() -> None:
    # the last turns, before the same state, earned nothing but for a rounding error: that is no spread
    votes = [turned("a", 0.1, 0.9, None, states="xyz"), turned("b", 0.3, 0.7, None, states="uvz")]
    rounded = [turned("a", 0.1, 0.9, None, states="xyz"), turned("b", 0.3, 0.7, None, outcome=-3e-17, states="uvz")]
    for each in (votes, rounded):
        assert by_turns(gigpo(each).turns["b"])[2] == 0.0
