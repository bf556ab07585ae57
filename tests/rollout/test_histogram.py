"""Histograms: what is counted in parts adds up to the whole, and a quantile is right to within one class."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.rollout.histogram import SECONDS, TOKENS, Bounds, Histogram

SMALL = Bounds(first=1.0, factor=2.0, classes=6)
"""1, 2, 4, 8, 16, 32, and what is above."""
VALUES = st.lists(st.integers(0, 320).map(lambda n: n / 8), max_size=40)


def of(values: Sequence[float], bounds: Bounds = SMALL) -> Histogram:
    made = Histogram(bounds=bounds)
    for value in values:
        made.add(value)
    return made


@given(st.lists(VALUES, max_size=5), st.randoms())
def test_parts_in_any_order_add_up_to_the_whole(parts: list[list[float]], order: object) -> None:
    whole = of([value for part in parts for value in part])
    added = Histogram(bounds=SMALL)
    for part in sorted(parts, key=lambda _: order.random()):  # type: ignore[attr-defined]
        added = added.plus(of(part))
    assert added.count == whole.count == sum(map(len, parts))
    assert (added.total, added.largest) == (whole.total, whole.largest)
    assert [added.quantile(share / 10) for share in range(11)] == [whole.quantile(share / 10) for share in range(11)]


@given(VALUES.filter(bool), st.integers(0, 20).map(lambda n: n / 20))
def test_a_quantile_is_right_to_within_one_class(values: list[float], share: float) -> None:
    found = of(values).quantile(share)
    assert found is not None
    assert found <= max(values)
    assert sum(value <= found for value in values) >= share * len(values)
    exact = sorted(values)[math.ceil(max(share * len(values), 1)) - 1]
    if exact <= SMALL.values()[-1]:
        assert found <= max(SMALL.factor * exact, SMALL.first)


@pytest.mark.parametrize(("value", "place"), [(0.0, 0), (1.0, 0), (1.01, 1), (2.0, 1), (32.0, 5), (32.1, 6), (1e9, 6)])
def test_a_bound_belongs_to_the_class_that_it_ends(value: float, place: int) -> None:
    assert of([value]).counts == [int(at == place) for at in range(7)]


def test_of_nothing_there_is_no_quantile() -> None:
    assert of([]).quantile(0.5) is None
    assert of([]).count == 0


def test_a_copy_does_not_change_with_its_original() -> None:
    original = of([1.0])
    copy = original.copy()
    original.add(2.0)
    assert (copy.count, original.count) == (1, 2)


def test_other_classes_cannot_be_added() -> None:
    with pytest.raises(RecordError, match="other classes"):
        of([1.0], SECONDS).plus(of([1.0], TOKENS))


def test_the_bounds_reach_as_far_as_they_say() -> None:
    assert (SECONDS.values()[0], SECONDS.values()[-1]) == pytest.approx((0.0005, 370), rel=0.01)
    assert TOKENS.values()[-1] == 2**23
