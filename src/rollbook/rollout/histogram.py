"""Counts by size, in classes whose bounds grow by a fixed factor: small, mergeable, and a quantile is right to within
one class. Pure."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import cache

import msgspec

from rollbook.errors import RecordError

__all__ = ["SECONDS", "TOKENS", "Bounds", "Histogram"]


class Bounds(msgspec.Struct, frozen=True, kw_only=True):
    """The upper bounds of the classes: `first`, and so many more by `factor`. What is above the last is a class of its
    own."""

    first: float
    factor: float
    classes: int

    def values(self) -> list[float]:
        """The bounds, ascending."""
        return [self.first * self.factor**place for place in range(self.classes)]


SECONDS = Bounds(first=0.0005, factor=2**0.5, classes=40)
"""Half a millisecond to six minutes."""
TOKENS = Bounds(first=1.0, factor=2.0, classes=24)
"""One token to eight million."""


class Histogram(msgspec.Struct, kw_only=True):
    """How many values fell into each class."""

    bounds: Bounds
    counts: list[int] = []
    """One per class, and the last for what is above all bounds; empty: nothing was counted yet."""
    total: float = 0.0
    """Sum of all values."""
    largest: float = 0.0
    """The largest value; 0 where there is none."""

    @property
    def count(self) -> int:
        """How many values."""
        return sum(self.counts)

    def add(self, value: float) -> None:
        """Count one value, at least 0."""
        if not self.counts:
            self.counts = [0] * (self.bounds.classes + 1)
        self.counts[bisect_left(_values(self.bounds), value)] += 1
        self.total += value
        self.largest = max(self.largest, value)

    def quantile(self, share: float) -> float | None:
        """A value that at least `share` of all are not above: the bound of its class, and at most the largest value.
        None where nothing was counted."""
        wanted, seen = max(share * self.count, 1), 0
        for count, bound in zip(self.counts, [*self.bounds.values(), math.inf], strict=False):
            seen += count
            if seen >= wanted:
                return min(bound, self.largest)
        return None

    def copy(self) -> Histogram:
        """The counts so far."""
        return msgspec.structs.replace(self, counts=list(self.counts))

    def plus(self, other: Histogram) -> Histogram:
        """Both together. Raises `RecordError` where their classes differ."""
        if self.bounds != other.bounds:
            raise RecordError("histograms of other classes cannot be added")
        counts = self.counts or [0] * len(other.counts)
        more = other.counts or [0] * len(counts)
        return Histogram(
            bounds=self.bounds,
            counts=[mine + its for mine, its in zip(counts, more, strict=True)],
            total=self.total + other.total,
            largest=max(self.largest, other.largest),
        )


@cache
def _values(bounds: Bounds) -> list[float]:
    return bounds.values()
