"""Loop lag: a block counts for all that fell due in it, and quantiles are right to within one class."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.rollout.histogram import SECONDS, TOKENS, Histogram
from rollbook.rollout.lag import TICK, LoopLag, count_tick

SIZES = st.lists(st.floats(0, 300), min_size=1, max_size=60)


@given(SIZES, st.sampled_from([0.0, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_is_right_to_within_one_class(values: list[float], share: float) -> None:
    histogram = Histogram(bounds=SECONDS)
    for value in values:
        histogram.add(value)
    found = histogram.quantile(share)
    ordered = sorted(values)
    exact = next(value for place, value in enumerate(ordered, 1) if place >= share * len(ordered))
    assert found is not None
    assert exact <= found <= max(exact * SECONDS.factor, SECONDS.first) * (1 + 1e-9)
    assert histogram.largest == max(values)
    assert histogram.quantile(1.0) == max(values)


@given(SIZES, SIZES)
def test_histograms_add_up(mine: list[float], its: list[float]) -> None:
    made = [Histogram(bounds=SECONDS) for _ in range(3)]
    for value in mine:
        made[0].add(value)
        made[2].add(value)
    for value in its:
        made[1].add(value)
        made[2].add(value)
    together = made[0].plus(made[1])
    assert (together.counts, together.largest) == (made[2].counts, made[2].largest)
    assert together.total == pytest.approx(made[2].total)


def test_others_classes_cannot_be_added() -> None:
    with pytest.raises(RecordError):
        Histogram(bounds=SECONDS).plus(Histogram(bounds=TOKENS))


def test_a_late_tick_counts_for_those_that_it_kept_from_coming() -> None:
    histogram = Histogram(bounds=SECONDS)
    for _ in range(50):
        count_tick(histogram, -0.001)
    count_tick(histogram, 50 * TICK)
    assert histogram.count == 101  # the tick itself, and 50 that were due since
    median = histogram.quantile(0.5)
    assert median is not None
    assert median < TICK  # half of the time it was in time
    p75 = histogram.quantile(0.75)
    assert p75 is not None
    assert p75 == pytest.approx(25 * TICK, rel=0.5)


def test_a_blocked_loop_is_seen() -> None:
    async def scenario() -> Histogram:
        async with LoopLag() as lag:
            await asyncio.sleep(0.1)
            time.sleep(0.3)  # noqa: ASYNC251 (the very thing that is measured)
            await asyncio.sleep(0.1)
        return lag.histogram

    histogram = asyncio.run(scenario())
    assert 0.25 <= histogram.largest < 1.0
    assert histogram.count >= 15
    p90 = histogram.quantile(0.9)
    assert p90 is not None
    assert p90 > 0.1
