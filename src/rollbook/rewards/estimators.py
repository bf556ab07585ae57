"""Advantage estimators: from the rewards of one group's voters to one advantage each, all by rollout id.

Rules: means and spreads are correctly rounded sums, so the order of the members changes nothing; a group whose rewards
are equal but for float error gives exactly 0.0; a group of one is such a group; an empty group gives nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rollbook.errors import RecordError

__all__ = ["Estimator", "estimate", "mean_baseline", "mean_spread"]

Estimator = Callable[[Mapping[str, float]], Mapping[str, float]]
"""Gets the voters' rewards by rollout id and gives an advantage for exactly these ids."""

EQUAL_WITHIN = 1e-9
"""Rewards that differ by less than this share of the largest one are equal."""


def mean_baseline(rewards: Mapping[str, float]) -> dict[str, float]:
    """Reward minus the group's mean, undivided (Dr. GRPO, arXiv 2503.20783)."""
    if _constant(rewards):
        return dict.fromkeys(rewards, 0.0)
    mean = math.fsum(rewards.values()) / len(rewards)
    return {rollout: reward - mean for rollout, reward in rewards.items()}


def mean_spread(rewards: Mapping[str, float]) -> dict[str, float]:
    """Reward minus the group's mean, divided by the sample standard deviation (n - 1) with nothing added to it
    (GRPO, DeepSeekMath, arXiv 2402.03300)."""
    centred = mean_baseline(rewards)
    if _constant(rewards):
        return centred
    spread = math.hypot(*centred.values()) / math.sqrt(len(rewards) - 1)
    return {rollout: value / spread for rollout, value in centred.items()}


def estimate(estimator: Estimator, rewards: Mapping[str, float]) -> dict[str, float]:
    """Run an estimator and hold it to its ids: missing, unknown or non-finite ones raise `RecordError`."""
    given = estimator(dict(rewards))
    missing, unknown = sorted(rewards.keys() - given.keys()), sorted(given.keys() - rewards.keys())
    if missing or unknown:
        raise RecordError(f"the advantage estimator left out {missing} and made up {unknown}; it must keep the ids")
    bad = sorted(rollout for rollout, value in given.items() if not math.isfinite(value))
    if bad:
        raise RecordError(f"the advantage estimator gave no finite number for {bad}")
    return {rollout: float(given[rollout]) for rollout in rewards}


def _constant(rewards: Mapping[str, float]) -> bool:
    values = rewards.values()
    if len(values) < 2:
        return True
    return max(values) - min(values) <= EQUAL_WITHIN * max(abs(value) for value in values)
