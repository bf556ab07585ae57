"""The loss against its formula, token by token."""

from __future__ import annotations

import math

import pytest
import torch

from rollbook.errors import ConfigError
from rollbook.trace import samples
from rollbook.train.batch import MicroBatch, micro_batches
from rollbook.train.loss import Correction, LossRules, policy_loss
from tests.export.build import end, start, turn

BEHAVED = (-1.0, -2.0, -0.5)
NOW = (-0.5, -4.0, -0.5)
RATIOS = (math.exp(0.5), math.exp(-2.0), 1.0)


def batch(version: int | None = 0, advantage: float = 2.0) -> MicroBatch:
    trace = end(turn(start(), (10, 11, 12), logprobs=BEHAVED, version=version))
    (made,) = micro_batches(list(samples(trace, advantage=advantage)), 99)
    return made


def loss(rules: LossRules, **given: object) -> tuple[float, list[float], int, int]:
    """Loss, gradient of each logprob, corrected, late."""
    now = torch.tensor(NOW, requires_grad=True)
    parts = policy_loss(now, batch(), rules, **given)  # pyright: ignore[reportArgumentType]
    parts.loss.backward()
    assert now.grad is not None
    return float(parts.loss.detach()), now.grad.tolist(), parts.corrected, parts.late


def test_without_correction_it_is_the_plain_policy_gradient() -> None:
    value, slope, corrected, _ = loss(LossRules(correction=Correction.NONE))
    assert value == pytest.approx(-2.0 * sum(NOW) / 3)
    assert slope == pytest.approx([-2 / 3] * 3)
    assert corrected == 0


def test_truncated_ratios_weigh_and_have_no_gradient_of_their_own() -> None:
    value, slope, corrected, _ = loss(LossRules(correction=Correction.TIS, cap=1.5))
    ratios = [1.5, RATIOS[1], 1.0]
    assert slope == pytest.approx([-2 / 3 * ratio for ratio in ratios])
    assert value == pytest.approx(-2 / 3 * sum(ratio * now for ratio, now in zip(ratios, NOW, strict=True)))
    assert corrected == 1


def test_ratios_outside_of_the_band_are_masked() -> None:
    _, slope, corrected, _ = loss(LossRules(correction=Correction.MASKED, low=0.5, high=1.2))
    assert slope == pytest.approx([0.0, 0.0, -2 / 3])
    assert corrected == 2
    assert slope[0] == slope[1] == 0.0


def test_the_kl_term_pulls_to_the_reference() -> None:
    reference = torch.tensor([-0.5, -3.0, -1.5])
    value, slope, _, _ = loss(LossRules(correction=Correction.NONE, kl=0.3), reference=reference)
    apart = [0.0, 1.0, -1.0]
    divergence = sum(math.exp(each) - 1 - each for each in apart) / 3
    assert value == pytest.approx(-2.0 * sum(NOW) / 3 + 0.3 * divergence)
    assert slope == pytest.approx([-2 / 3 + 0.1 * (1 - math.exp(each)) for each in apart])
    with pytest.raises(ConfigError, match="needs the reference"):
        loss(LossRules(kl=0.3))


@pytest.mark.parametrize(("sampled", "now", "late"), [(4, 5, 0), (4, 6, 3), (None, 5, 3), (None, 0, 3), (5, 5, 0)])
def test_tokens_too_many_versions_behind_leave_the_loss(sampled: int | None, now: int, late: int) -> None:
    values = torch.tensor(NOW, requires_grad=True)
    parts = policy_loss(values, batch(sampled), LossRules(max_lag=1), version=now)
    parts.loss.backward()
    assert values.grad is not None
    assert parts.late == late
    assert (values.grad == 0).all() == (late == 3)
    with pytest.raises(ConfigError, match="trainer's own version"):
        policy_loss(values, batch(sampled), LossRules(max_lag=1))


@pytest.mark.parametrize("wrong", [{"cap": 0.0}, {"low": 2.0, "high": 1.0}, {"kl": -1.0}, {"max_lag": -1}])
def test_there_is_no_such_loss(wrong: dict[str, float]) -> None:
    with pytest.raises(ConfigError):
        LossRules(**wrong)  # pyright: ignore[reportArgumentType]
