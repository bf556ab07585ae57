"""Whole rewards within one group: hand-computed numbers, and what each estimator does with few."""

from __future__ import annotations

import pytest

from rollbook.errors import ConfigError
from rollbook.rewards.estimators.baselines import dr_grpo, grpo, maxrl, opo, pass_at_k, rloo
from tests.rewards.estimators.made import group


def test_dr_grpo_takes_the_mean_off() -> None:
    assert dr_grpo(group(1.0, 0.0, 0.5, 0.5)).values == {"a": 0.5, "b": -0.5, "c": 0.0, "d": 0.0}


def test_grpo_divides_by_the_sample_standard_deviation() -> None:
    # the deviations 2/3, -1/3, -1/3 have squares of 6/9 in all, over 2: the spread is 1 / sqrt(3)
    assert grpo(group(1.0, 0.0, 0.0)).values == pytest.approx({"a": 1.1547005, "b": -0.5773503, "c": -0.5773503})
    assert grpo(group(-0.03, -0.06, -0.09, -0.12)).values == pytest.approx(
        {"a": 1.1618950, "b": 0.3872983, "c": -0.3872983, "d": -1.1618950}
    )


def test_rloo_compares_with_the_others() -> None:
    assert rloo(group(1.0, 3.0, 2.0)).values == {"a": -1.5, "b": 1.5, "c": 0.0}
    assert rloo(group(1.0, 0.0)).values == {"a": 1.0, "b": -1.0}


def test_opo_weighs_the_baseline_by_length() -> None:
    # (1 * 30 + 0 * 10) / 40 = 0.75
    assert opo(group(1.0, 0.0, sampled=[30, 10])).values == {"a": 0.25, "b": -0.75}
    assert opo(group(1.0, 0.0, sampled=[0, 10])).values == {"a": 1.0, "b": 0.0}
    assert opo(group(1.0, 0.0, sampled=[0, 0])).values == {"a": 0.5, "b": -0.5}, "nobody counted"


def test_maxrl_divides_by_the_success_rate() -> None:
    # one of four passes: m = 1/4, (1 - 1/4) / (1/4) = 3
    assert maxrl(group(1.0, 0.0, 0.0, 0.0)).values == pytest.approx({"a": 3.0, "b": -1.0, "c": -1.0, "d": -1.0})
    assert maxrl(group(1e-30, 0.0)).values == pytest.approx({"a": 1.0, "b": -1.0}), "nothing is added below"
    assert maxrl(group(0.0, 0.0)).values == {"a": 0.0, "b": 0.0}
    with pytest.raises(ConfigError, match=r"negative ones have \['b'\]"):
        maxrl(group(1.0, -0.5))


def test_pass_at_k_credits_the_best_alone() -> None:
    assert pass_at_k(group(0.25, 1.0, 0.5)).values == {"a": 0.0, "b": 0.5, "c": 0.0}
    assert pass_at_k(group(1.0, 1.0, 0.0)).values == dict.fromkeys("abc", 0.0), "two share the best place"
    assert pass_at_k(group(0.1 + 0.2, 0.3, 0.0)).values == dict.fromkeys("abc", 0.0), "and float error parts nobody"
