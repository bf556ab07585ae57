"""Estimators over a whole batch."""

from __future__ import annotations

import math

import pytest

from rollbook.rewards.estimators import Vote
from rollbook.rewards.estimators.whole_batch import gdpo, reinforce_pp, reinforce_pp_baseline
from tests.rewards.estimators.made import group


def other(*rewards: float) -> list[Vote]:
    return [Vote(rollout=f"z{place}", reward=reward) for place, reward in enumerate(rewards)]


def parted(rollout: str, penalty: float = 0.0, **parts: float) -> Vote:
    return Vote(rollout=rollout, reward=sum(parts.values()) + penalty, penalty=penalty, parts=parts)


def test_reinforce_pp_normalises_over_the_batch() -> None:
    # 1, 0, 0 and 1: the mean is 1/2, the deviations 1/2 each, the sample spread sqrt(1/3)
    first, second = reinforce_pp([group(1.0, 0.0), other(0.0, 1.0)])
    assert first.values == pytest.approx({"a": math.sqrt(3) / 2, "b": -math.sqrt(3) / 2})
    assert second.values == pytest.approx({"z0": -math.sqrt(3) / 2, "z1": math.sqrt(3) / 2})
    alone = reinforce_pp([group(1.0, 1.0), other(0.0)])
    assert [credit.values for credit in alone] == [
        pytest.approx({"a": 1 / math.sqrt(3), "b": 1 / math.sqrt(3)}),
        pytest.approx({"z0": -2 / math.sqrt(3)}),
    ], "groups play no part, one of a single member neither"
    assert reinforce_pp([group(5.0)])[0].values == {"a": 0.0}, "a batch of one"


def test_reinforce_pp_baseline_centres_in_the_group_and_divides_by_the_batch() -> None:
    # 1/2, -1/2, 2 and -2: the squares are 17/2 in all, over 3
    spread = math.sqrt(8.5 / 3)
    first, second = reinforce_pp_baseline([group(1.0, 0.0), other(4.0, 0.0)])
    assert first.values == pytest.approx({"a": 0.5 / spread, "b": -0.5 / spread})
    assert second.values == pytest.approx({"z0": 2 / spread, "z1": -2 / spread})
    flat, _ = reinforce_pp_baseline([group(0.3, 0.1 + 0.2), other(4.0, 0.0)])
    assert flat.values == {"a": 0.0, "b": 0.0}, "exactly, beside a group that differs"


def test_gdpo_normalises_each_part_alone() -> None:
    # of two members each part is +-1/sqrt(2), whatever its scale; all over the spread of the batch
    votes = [parted("a", right=1.0, short=0.001), parted("b", right=0.0, short=0.002)]
    (found,) = gdpo([votes])
    assert found.values == {"a": 0.0, "b": 0.0}, "the parts undo each other though one is a thousand times larger"
    both = [parted("a", right=1.0, short=0.002), parted("b", right=0.0, short=0.001)]
    other_way = [parted("y", right=1.0, short=0.001), parted("z", right=0.0, short=0.001)]
    first, second = gdpo([both, other_way])
    # the sums are +-sqrt(2) and +-1/sqrt(2): squares of 5 in all, over 3
    spread = math.sqrt(5 / 3)
    assert first.values == pytest.approx({"a": math.sqrt(2) / spread, "b": -math.sqrt(2) / spread})
    assert second.values == pytest.approx({"y": math.sqrt(0.5) / spread, "z": -math.sqrt(0.5) / spread})


def test_gdpo_weighs_parts() -> None:
    votes = [parted("a", right=1.0, short=0.001), parted("b", right=0.0, short=0.002)]
    (found,) = gdpo([votes], weights={"short": 3.0})
    assert found.values["a"] < 0 < found.values["b"]


def test_gdpo_leaves_a_missing_part_out_of_its_statistics() -> None:
    votes = [parted("a", right=1.0, style=5.0), parted("b", right=0.0, style=1.0), parted("c", right=0.5)]
    with_zero = [*votes[:2], parted("c", right=0.5, style=0.0)]
    (found,), (zero,) = gdpo([votes]), gdpo([with_zero])
    assert found.values["c"] == 0.0, "in the middle of the one part that it has"
    assert zero.values["c"] < 0


def test_gdpo_takes_a_reward_without_parts_whole_and_a_penalty_as_a_part() -> None:
    (found,) = gdpo([group(1.0, 0.0)])
    assert found.values == pytest.approx({"a": math.sqrt(0.5), "b": -math.sqrt(0.5)})
    (cut,) = gdpo([[parted("a", right=1.0), parted("b", penalty=-0.25, right=1.0)]])
    assert cut.values == pytest.approx({"a": math.sqrt(0.5), "b": -math.sqrt(0.5)})


def test_a_part_that_is_float_noise_adds_nothing() -> None:
    votes = [parted("a", right=1.0, noise=1e-17), parted("b", right=0.0, noise=0.0), parted("c", right=0.0, noise=0.0)]
    clean = [parted(name, right=right) for name, right in (("a", 1.0), ("b", 0.0), ("c", 0.0))]
    assert gdpo([votes])[0].values == gdpo([clean])[0].values
