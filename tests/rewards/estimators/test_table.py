"""What holds for every estimator, and how each is held to its rollouts."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Callable, Mapping, Sequence

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError, RecordError
from rollbook.rewards.estimators import (
    DEFAULT_ESTIMATOR,
    ESTIMATORS,
    Credit,
    EstimatorRow,
    TurnVote,
    Vote,
    estimate,
    find_estimator,
)
from tests.rewards.estimators.made import GROUP, TURNED, group

NAMES = sorted(ESTIMATORS)
ANY = st.one_of(GROUP, TURNED)


def run(name: str, *groups: Sequence[Vote]) -> list[Credit]:
    """An estimator that is not defined for negative rewards gets their sizes."""
    given_votes = [[msgspec.structs.replace(vote, reward=abs(vote.reward)) for vote in votes] for votes in groups]
    return estimate(ESTIMATORS[name], given_votes if name == "maxrl" else groups)


def other(*rewards: float) -> list[Vote]:
    return [Vote(rollout=f"other{place}", reward=reward, sampled=1) for place, reward in enumerate(rewards)]


def test_the_table_names_each_with_its_source() -> None:
    assert DEFAULT_ESTIMATOR in ESTIMATORS
    assert all(row.name == name and row.about and row.source for name, row in ESTIMATORS.items())
    assert {name for name, row in ESTIMATORS.items() if row.whole_batch} == {
        "gdpo",
        "reinforce_pp",
        "reinforce_pp_baseline",
    }
    with pytest.raises(ConfigError, match="there is no estimator 'ppo'; there are dr_grpo, grpo"):
        find_estimator("ppo")


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(votes=ANY, shuffler=st.randoms(use_true_random=False))
def test_the_order_of_members_changes_nothing(name: str, votes: list[Vote], shuffler: random.Random) -> None:
    (found,) = run(name, votes)
    mixed = list(votes)
    shuffler.shuffle(mixed)
    (again,) = run(name, mixed)
    assert again.values == pytest.approx(found.values)
    assert again.turns == {rollout: tuple(map(pytest.approx, rows)) for rollout, rows in found.turns.items()}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in ("reinforce_pp", "gigpo")])
@settings(deadline=None, max_examples=40)
@given(reward=st.floats(-1e6, 1e6), size=st.integers(1, 8), dtype=st.sampled_from([np.float32, np.float64]))
def test_a_constant_group_gives_exactly_nothing(
    name: str, reward: float, size: int, dtype: Callable[[float], np.floating]
) -> None:
    exact = dtype(reward)
    noise = np.spacing(exact) if abs(exact) > 1e-30 else 0.0
    rewards = [float(exact + place % 3 * noise) for place in range(size)]
    found, _ = run(name, group(*rewards, sampled=range(1, size + 1)), other(1.0, 0.0))
    assert all(value == 0.0 for value in found.values.values())
    assert not found.turns


@pytest.mark.parametrize("name", ["reinforce_pp", "gigpo", "turn_level"])
def test_so_does_a_constant_batch_with_turns(name: str) -> None:
    turns = (TurnVote(reward=0.1, state="x"), TurnVote(reward=0.2, state="y"))
    votes = [Vote(rollout=key, reward=0.1 + 0.2 if key == "a" else 0.3, turns=turns) for key in "abc"]
    (found,) = run(name, votes)
    assert set(found.values.values()) == {0.0}
    assert {value for rows in found.turns.values() for _, value in rows} <= {0.0}


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reward", [0.0, 5.0, 3.4e38])
def test_a_group_of_one_and_of_none(name: str, reward: float) -> None:
    assert [credit.values for credit in run(name, group(reward), [])] == [{"a": 0.0}, {}]


@pytest.mark.parametrize("name", NAMES)
@settings(deadline=None, max_examples=40)
@given(votes=ANY)
def test_advantages_are_finite_and_of_these_rollouts(name: str, votes: list[Vote]) -> None:
    (found,) = run(name, votes)
    assert found.values.keys() == {vote.rollout for vote in votes}
    assert all(map(math.isfinite, found.values.values()))


@pytest.mark.parametrize("name", [name for name in NAMES if name != "maxrl"])
@settings(deadline=None, max_examples=40)
@given(rewards=st.lists(st.integers(-4, 4), max_size=6), shift=st.integers(-8, 8))
def test_a_shift_of_all_rewards_changes_nothing(name: str, rewards: list[int], shift: int) -> None:
    (found,) = run(name, group(*map(float, rewards)))
    (moved,) = run(name, group(*(float(reward + shift) for reward in rewards)))
    assert moved.values == pytest.approx(found.values, abs=1e-9)


def test_maxrl_is_not_blind_to_a_shift_and_divides_away_a_factor() -> None:
    (found,), (moved,), (scaled,) = run("maxrl", group(1, 0)), run("maxrl", group(2, 1)), run("maxrl", group(7, 0))
    assert found.values != moved.values
    assert found.values == scaled.values


@pytest.mark.parametrize("name", ["grpo", "reinforce_pp", "reinforce_pp_baseline", "gdpo", "gigpo"])
def test_a_factor_is_normalised_away(name: str) -> None:
    (found,), (scaled,) = run(name, group(1, 0, 0.5)), run(name, group(100, 0, 50))
    assert found.values == pytest.approx(scaled.values)


def only(values: Mapping[str, float], turns: Mapping[str, tuple[tuple[int, float], ...]] | None = None) -> EstimatorRow:
    """An estimator that always says the same."""
    credit = Credit(values=dict(values), turns=dict(turns or {}))
    return dataclasses.replace(ESTIMATORS["grpo"], estimate=lambda groups: [credit for _ in groups])


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (only({"c": 1.0, "a": -1.0}), r"left out \['b'\]"),
        (only({"a": 0.0, "b": 0.0, "c": 0.0, "d": 0.0}), r"made up \['d'\]"),
        (only({"a": 0.0, "b": 0.0, "c": 0.0}, {"d": ()}), r"made up \['d'\]"),
        (only({"a": 0.0, "b": math.nan, "c": 0.0}), r"no finite number for \['b'\]"),
        (only({"a": 0.0, "b": 0.0, "c": 0.0}, {"c": ((0, math.inf),)}), r"no finite number for \['c'\]"),
        (only({"a": 0.0, "b": 0.0, "c": 0.0}, {"c": ((0, 1.0),)}), r"made up turns of \['c'\]"),
    ],
)
def test_an_estimator_is_held_to_its_ids(row: EstimatorRow, problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        estimate(row, [group(1.0, 0.0, 0.5)])


def test_and_to_its_groups() -> None:
    row = dataclasses.replace(ESTIMATORS["grpo"], estimate=lambda groups: [])
    with pytest.raises(RecordError, match="gave 0 groups for 1"):
        estimate(row, [group(1.0)])


def test_a_users_own_may_answer_in_any_order_and_cannot_change_its_input() -> None:
    def reverse(given: Mapping[str, float]) -> dict[str, float]:
        found = {key: given[key] * 2 for key in reversed(list(given))}
        assert isinstance(given, dict)
        given.clear()
        return found

    row = find_estimator(reverse)
    assert row.name.endswith("reverse")
    (found,) = estimate(row, [group(1.0, 0.0)])
    assert list(found.values.items()) == [("a", 2.0), ("b", 0.0)]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rewards", [(5e-324, 0.0), (5e-324, 5e-324, 0.0, 0.0, 0.0, 0.0)])
def test_the_smallest_differences_give_finite_numbers(name: str, rewards: tuple[float, ...]) -> None:
    votes = [msgspec.structs.replace(vote, turns=(TurnVote(state="s"),)) for vote in group(*rewards)]
    (found,) = estimate(ESTIMATORS[name], [votes])
    assert len(found.values) == len(rewards)
