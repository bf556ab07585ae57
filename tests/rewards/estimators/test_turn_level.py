"""Credit by turn: numbers, sums, and that the gradient points where it should."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import pytest
from hypothesis import given, settings

from rollbook.rewards.estimators import TurnVote, Vote
from rollbook.rewards.estimators.baselines import dr_grpo
from rollbook.rewards.estimators.turn_level import turn_level
from tests.rewards.estimators.made import TURNED, by_turns, turned


def test_returns_are_centred_and_never_single_turns() -> None:
    found = turn_level([turned("a", 1.0), turned("b", 0.5, 1.0)])
    assert found.values == {"a": -0.25, "b": 0.25}
    assert by_turns(found.turns["a"]) == [-0.25]
    # before b's second turn: b has 1.0 left, a stopped with nothing left; (1.0 + 0.0) / 2
    assert by_turns(found.turns["b"]) == [0.25, 0.5]


def test_an_outcome_at_the_end_counts_for_every_turn_and_for_those_that_stopped() -> None:
    found = turn_level([turned("a", None, outcome=1.0), turned("b", None, 0.25, None, outcome=0.0)])
    assert found.values == {"a": 0.375, "b": -0.375}
    # left before each turn: a 1.0 and then still 1.0; b 0.25, 0.25, 0.0
    assert by_turns(found.turns["a"]) == [0.375]
    assert by_turns(found.turns["b"]) == [-0.375, -0.375, -0.5]


def test_where_no_turn_was_rewarded_it_is_the_rollouts_own() -> None:
    votes = [turned("a", None, None, outcome=1.0), turned("b", None, outcome=0.0)]
    assert turn_level(votes) == dr_grpo(votes)


def test_equal_returns_of_unequal_turns_differ_where_the_turns_do() -> None:
    found = turn_level([turned("a", 1.0, 0.0), turned("b", 0.0, 1.0)])
    assert found.values == {"a": 0.0, "b": 0.0}
    assert by_turns(found.turns["a"]) == [0.0, -0.5]
    assert by_turns(found.turns["b"]) == [0.0, 0.5]


def test_rounding_of_differences_is_no_advantage() -> None:
    found = turn_level([turned("a", 0.1, 0.2, outcome=0.7), turned("b", 0.1, 0.2, outcome=0.7)])
    noisy = turn_level(
        [turned("a", 0.1, 0.2, 0.7), Vote(rollout="b", reward=1.0, turns=turned("b", 0.1, 0.2, 0.7).turns)]
    )
    for each in (found, noisy):
        assert {value for rows in each.turns.values() for _, value in rows} == {0.0}


@settings(deadline=None, max_examples=60)
@given(TURNED)
def test_the_first_turn_has_the_rollouts_own_advantage_and_each_column_sums_to_nothing(votes: list[Vote]) -> None:
    found = turn_level(votes)
    for vote in votes if found.turns else ():
        assert by_turns(found.turns[vote.rollout])[0] == found.values[vote.rollout]
    assert math.fsum(found.values.values()) == pytest.approx(0.0, abs=1e-9)


@settings(deadline=None, max_examples=60)
@given(TURNED)
def test_neighbouring_turns_differ_by_what_the_earlier_one_earned_beside_the_group(votes: list[Vote]) -> None:
    found = turn_level(votes)
    for vote in votes if found.turns else ():
        rows = by_turns(found.turns[vote.rollout])
        for turn in range(len(rows) - 1):
            earned = [each.turns[turn].reward or 0.0 if turn < len(each.turns) else 0.0 for each in votes]
            own = vote.turns[turn].reward or 0.0
            assert rows[turn] - rows[turn + 1] == pytest.approx(own - math.fsum(earned) / len(votes), abs=1e-9)


# A tiny world, in full: the first turn stops (1.0) or goes on (0.5); a second one is good (1.0) or bad (0.0).
STOP, GOOD = 0.3, 0.6
Path = tuple[tuple[int, int], ...]
"""(decision, choice) of each turn."""
PATHS: dict[Path, tuple[float, list[float], float]] = {
    ((0, 1),): (STOP, [1.0], 0.25),
    ((0, 0), (1, 1)): ((1 - STOP) * GOOD, [0.5, 1.0], 0.25),
    ((0, 0), (1, 0)): ((1 - STOP) * (1 - GOOD), [0.5, 0.0], 0.0),
}
"""Path -> (probability, turn rewards, outcome)."""


def score(step: tuple[int, int]) -> tuple[float, float]:
    """Gradient of the log-probability of a choice in both logits."""
    decision, choice = step
    value = choice - (STOP, GOOD)[decision]
    return (value, 0.0) if decision == 0 else (0.0, value)


def member(name: str, path: Path) -> Vote:
    _, earned, outcome = PATHS[path]
    turns = tuple(TurnVote(reward=reward) for reward in earned)
    return Vote(rollout=name, reward=math.fsum(earned) + outcome, turns=turns)


def by_index_alone(votes: Sequence[Vote]) -> dict[str, list[float]]:
    """What the report is about: each turn's reward minus the mean of those that took this turn."""
    means = [
        [vote.turns[turn].reward or 0.0 for vote in votes if turn < len(vote.turns)]
        for turn in range(max(len(vote.turns) for vote in votes))
    ]
    return {
        vote.rollout: [
            (each.reward or 0.0) - sum(means[turn]) / len(means[turn]) for turn, each in enumerate(vote.turns)
        ]
        for vote in votes
    }


def expected(of: str) -> tuple[float, float]:
    """The exact mean of the gradient estimate of a group of three."""
    total = [0.0, 0.0]
    for paths in itertools.product(PATHS, repeat=3):
        votes = [member(f"r{place}", path) for place, path in enumerate(paths)]
        chance = math.prod(PATHS[path][0] for path in paths)
        ours = {name: by_turns(rows) for name, rows in turn_level(votes).turns.items()}
        credit = ours if of == "ours" else by_index_alone(votes)
        for vote, path in zip(votes, paths, strict=True):
            for turn, step in enumerate(path):
                for axis, value in enumerate(score(step)):
                    total[axis] += chance * value * credit[vote.rollout][turn] / 3
    return total[0], total[1]


def test_its_gradient_is_the_true_one_but_for_the_share_of_the_own_return() -> None:
    true = [0.0, 0.0]
    for path, (chance, earned, outcome) in PATHS.items():
        for step in path:
            for axis, value in enumerate(score(step)):
                true[axis] += chance * value * (math.fsum(earned) + outcome)
    ours, theirs = expected("ours"), expected("index")
    assert ours == pytest.approx([2 / 3 * each for each in true])
    assert theirs[0] / theirs[1] != pytest.approx(true[0] / true[1], rel=0.05), "the other way turns the gradient"
