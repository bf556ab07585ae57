"""A rollout's own time: it stands still while nothing but limiters is waited for, and at the deadline it cuts."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rollbook.rollout import Limits, Part, Stopwatch
from rollbook.rollout.limits import Budget
from rollbook.rollout.own_time import OwnTime
from tests.rollout.skipping import run_skipping

STEPS = st.lists(st.tuples(st.sampled_from([Part.TOOL, Part.ENGINE, Part.LIMITER]), st.integers(0, 64)), max_size=12)


def budget_of(deadline: float | None, spent: float = 0.0) -> Budget:
    return Budget(Limits(deadline=deadline), seconds=spent)


def own_time(budget: Budget) -> OwnTime:
    return OwnTime(budget, Stopwatch(asyncio.get_running_loop().time))


@given(steps=STEPS, deadline=st.none() | st.integers(1, 200), spent=st.integers(0, 20))
def test_it_is_what_passes_outside_of_limiters_and_ends_at_the_deadline(
    steps: list[tuple[Part, int]], deadline: int | None, spent: int
) -> None:
    wanted = spent + sum(seconds for part, seconds in steps if part is not Part.LIMITER)
    assume(deadline is None or (spent < deadline and wanted != deadline))
    budget = budget_of(None if deadline is None else float(deadline), float(spent))

    async def main() -> tuple[bool, bool]:
        own, cut = own_time(budget), False
        try:
            async with own:
                for part, seconds in steps:
                    own.turn_to(part)
                    await asyncio.sleep(seconds)
        except TimeoutError:
            cut = True
        return cut, own.over

    over = deadline is not None and wanted > deadline
    assert run_skipping(main()) == (over, over)
    assert budget.seconds == pytest.approx(deadline if over else wanted)


def test_a_wait_for_a_limiter_however_long_is_never_cut() -> None:
    async def main(budget: Budget) -> float:
        async with own_time(budget) as own:
            await asyncio.sleep(0.75)
            own.turn_to(Part.LIMITER)
            await asyncio.sleep(3600)
            own.turn_to(Part.TOOL)
            await asyncio.sleep(0.125)
        return budget.seconds

    assert run_skipping(main(budget_of(1.0))) == pytest.approx(0.875)


def test_what_passed_before_a_failure_is_charged() -> None:
    async def main(budget: Budget) -> None:
        async with own_time(budget):
            await asyncio.sleep(2)
            raise ValueError("the tool")

    budget = budget_of(10.0)
    with pytest.raises(ValueError, match="the tool"):
        run_skipping(main(budget))
    assert budget.seconds == pytest.approx(2)


def test_what_the_work_does_over_its_cut_winds_nothing_back() -> None:
    async def work(own: OwnTime) -> None:
        async with own:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                own.turn_to(Part.LIMITER)
                own.turn_to(Part.TOOL)
                raise

    async def main(budget: Budget) -> bool:
        own = own_time(budget)
        with pytest.raises(TimeoutError):
            await work(own)
        return own.over

    budget = budget_of(1.0)
    assert run_skipping(main(budget)) is True
    assert budget.seconds == pytest.approx(1.0)
