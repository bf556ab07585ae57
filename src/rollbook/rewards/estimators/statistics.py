"""Means and spreads that estimators share.

Rules: sums are correctly rounded, so the order of the members changes nothing; whether members differ is asked of their
rewards and never of a computed spread, so numbers that are equal but for float error give exactly 0.0, also such as
were computed in float32; a single number is such a group.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

__all__ = ["EQUAL_WITHIN", "centred", "constant", "deviation", "largest", "mean", "normalised"]

EQUAL_WITHIN = 1e-6
"""Numbers that differ by less than this share of the largest one are equal: a few roundings of a float32."""
ROUNDING = 1e-12
"""The share of the largest number by which a mean may be off, generously; who is no further from it stands on it."""

_Key = TypeVar("_Key", bound=Hashable)


def constant(values: Collection[float], noise: float = 0.0) -> bool:
    """True where the values are equal but for float error. `noise`: how far apart equal ones may be, where they are
    differences of larger numbers."""
    if len(values) < 2:
        return True
    return max(values) - min(values) <= max(EQUAL_WITHIN * largest(values), noise)


def largest(values: Collection[float]) -> float:
    """The largest size among them; 0 where there are none."""
    return max(map(abs, values), default=0.0)


def mean(values: Collection[float]) -> float:
    """Correctly rounded. There must be some."""
    return math.fsum(values) / len(values)


def deviation(centred_values: Collection[float]) -> float:
    """Sample standard deviation (n - 1) of at least two values whose mean was taken off, and that are not all 0; never
    rounded down to 0."""
    return max(math.hypot(*centred_values) / math.sqrt(len(centred_values) - 1), math.ulp(0.0))


def centred(rewards: Mapping[_Key, float], noise: float = 0.0) -> dict[_Key, float]:
    """Each minus the mean of all; exactly 0 where they are equal, and where one is the mean but for rounding."""
    if constant(rewards.values(), noise):
        return dict.fromkeys(rewards, 0.0)
    middle, rounding = mean(rewards.values()), ROUNDING * largest(rewards.values())
    off = {key: reward - middle for key, reward in rewards.items()}
    return {key: 0.0 if abs(value) <= rounding else value for key, value in off.items()}


def normalised(rewards: Mapping[_Key, float], noise: float = 0.0) -> dict[_Key, float]:
    """Centred and divided by the sample standard deviation, with nothing added to it; exactly 0 where they are
    equal."""
    off = centred(rewards, noise)
    if constant(rewards.values(), noise):
        return off
    spread = deviation(off.values())
    return {key: value / spread for key, value in off.items()}
