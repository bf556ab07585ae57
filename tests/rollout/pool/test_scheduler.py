"""The scheduler: so many at once, first finished first told, waits hold no slot, nothing is waited for that never
comes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence

import pytest

from rollbook.errors import RollbookError, StoreError
from rollbook.rewards import Outcome
from rollbook.rollout.pool import GroupBook, NextGroup, Order, Result, Scheduler
from rollbook.trace import Fate, Reason
from tests.rollout.pool.pooled import Carries, Heard, Says, book, outcome


def go(
    books: Sequence[GroupBook],
    says: Says,
    *,
    concurrency: int = 8,
    seconds: float = 0.0,
    heard: Heard | None = None,
    **limits: float,
) -> tuple[Heard, Carries]:
    left = iter(books)
    heard = heard or Heard()
    executor = Carries(says, seconds)

    async def next_group() -> GroupBook | None:
        return next(left, None)

    async def main() -> None:
        scheduler = Scheduler(executor, heard, concurrency=concurrency, **limits)
        async with asyncio.timeout(20):
            await scheduler.run(next_group)
        assert len(asyncio.all_tasks()) == 1, "nothing is left running"

    asyncio.run(main())
    return heard, executor


def test_every_group_closes_and_no_more_run_at_once_than_may() -> None:
    heard, executor = go([book(4, group=f"g{n}") for n in range(5)], outcome, concurrency=3, seconds=0.002)
    assert sorted(each.plan.id for each in heard.groups) == [f"g{n}" for n in range(5)]
    assert len(heard.outcomes) == len({each.rollout for each in heard.outcomes}) == 20
    assert executor.most == 3


def test_no_groups_is_no_matter() -> None:
    heard, _ = go([], outcome)
    assert heard.groups == []


def test_a_slow_rollout_never_delays_a_finished_one() -> None:
    when: dict[str, float] = {}

    class Clock(Heard):
        def ended(self, outcome: Outcome, *, late: bool) -> None:
            super().ended(outcome, late=late)
            when[outcome.rollout] = time.monotonic()

    began = time.monotonic()
    go([book(1, group="slow"), *(book(1, group=f"g{n}") for n in range(3))], slow_one, heard=Clock(), concurrency=2)
    assert max(when[f"g{n}-0"] for n in range(3)) - began < when["slow-0"] - began


def slow_one(order: Order) -> Outcome | float:
    return 0.3 if order.group == "slow" else outcome(order)


def test_a_wait_before_a_retry_holds_no_slot() -> None:
    def says(order: Order) -> Outcome:
        failed = order.group == "g0" and order.attempt == 0
        return outcome(order, Reason.SANDBOX_LOST if failed else Reason.FINAL_ANSWER)

    heard, executor = go([book(1, group=f"g{n}") for n in range(4)], says, concurrency=1)
    assert [each.rollout for each in executor.orders] == ["g0-0", "g1-0", "g2-0", "g3-0", "g0-0.1"]
    assert len(heard.groups) == 4


def test_an_order_that_is_overdue_is_given_up_and_its_late_end_is_not_used() -> None:
    def says(order: Order) -> Outcome | float:
        return 10.0 if order.attempt == 0 else outcome(order)

    heard, executor = go([book(1)], says, order_seconds=0.05)
    assert executor.cancelled == ["g-0"]
    (closed,) = heard.groups
    assert [each.rollout for each in closed.outcomes] == ["g-0.1"]
    assert [(each.rollout, each.disposition.fate) for each in heard.late] == [("g-0", Fate.DROPPED)]


def test_a_group_past_its_deadline_closes_and_its_members_are_cancelled() -> None:
    def says(order: Order) -> Outcome | float:
        return 10.0 if order.member else outcome(order)

    heard, executor = go([book(2)], says, group_seconds=0.05)
    assert executor.cancelled == ["g-1"]
    assert heard.groups[0].used == 1
    assert [each.reason for each in heard.late] == [Reason.CANCELLED]


def test_members_that_wait_when_their_group_closes_never_start() -> None:
    heard, executor = go([book(4, enough=1)], outcome, concurrency=1)
    assert [each.rollout for each in executor.orders] == ["g-0"]
    assert heard.groups[0].cancelled == ("g-1", "g-2", "g-3")


class Steps(Carries):
    """Takes so many turns of the loop for each rollout."""

    def __init__(self, steps: dict[str, int]) -> None:
        super().__init__(outcome)
        self.steps = steps
        self.too_late: list[str] = []
        """Rollouts that started although they had been cancelled."""

    async def run(self, order: Order) -> Result | None:
        if order.rollout in self.cancelled:
            self.too_late.append(order.rollout)
        for _ in range(self.steps[order.rollout]):
            await asyncio.sleep(0)
        return Result(rollout=order.rollout, outcome=outcome(order))


def test_what_is_cancelled_in_the_moment_of_its_start_never_starts() -> None:
    """The slot of `a-0` is free when the group of `b-0` is about to close."""
    for later in range(12):
        books = iter([book(1, group="a"), book(2, group="b", enough=1)])
        executor = Steps({"a-0": 9, "b-0": 6 + later, "b-1": 40})

        async def next_group(books: Iterator[GroupBook] = books) -> GroupBook | None:
            return next(books, None)

        async def main(executor: Steps = executor, next_group: NextGroup = next_group) -> None:
            await Scheduler(executor, Heard(), concurrency=2).run(next_group)

        asyncio.run(main())
        assert executor.too_late == [], later


def test_a_worker_that_dies_has_its_order_run_again() -> None:
    deaths = iter([True, False])
    heard, executor = go([book(1)], lambda order: None if next(deaths) else outcome(order))
    assert [each.rollout for each in executor.orders] == ["g-0", "g-0"]
    assert heard.groups[0].used == 1


@pytest.mark.parametrize("late", [False, True])
def test_what_the_listener_raises_stops_the_run(late: bool) -> None:
    class Full(Heard):
        def ended(self, outcome: Outcome, *, late: bool) -> None:
            raise StoreError("no space")

        def closed(self, closed: object) -> None:
            raise StoreError("no space")

    limits = {"group_seconds": 0.02} if late else {}
    with pytest.raises(StoreError, match="no space"):
        go([book(2), book(2, group="h")], (lambda _: 5.0) if late else outcome, heard=Full(), concurrency=1, **limits)


def test_cancelling_it_cancels_what_runs() -> None:
    async def main() -> int:
        executor = Carries(lambda _: 10.0)
        left = iter([book(3)])

        async def next_group() -> GroupBook | None:
            return next(left, None)

        task = asyncio.create_task(Scheduler(executor, Heard(), concurrency=3).run(next_group))
        while executor.running < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        task.cancel()
        await asyncio.wait((task,))
        assert task.cancelled()
        return executor.running

    assert asyncio.run(main()) == 0


class Deaf(Carries):
    """Hears no cancellation of a rollout."""

    def cancel(self, rollout: str) -> None:
        self.cancelled.append(rollout)


class Full(Heard):
    """Its disk is full, or it is broken, when a group closes."""

    def __init__(self, failure: Exception) -> None:
        super().__init__()
        self.failure = failure

    def closed(self, closed: object) -> None:
        raise self.failure


def stops_within(seconds: float, executor: Carries, heard: Heard, books: Sequence[GroupBook], **limits: float) -> None:
    left = iter(books)

    async def next_group() -> GroupBook | None:
        return next(left, None)

    async def main() -> None:
        async with asyncio.timeout(seconds):
            await Scheduler(executor, heard, **limits).run(next_group)  # type: ignore[arg-type]

    asyncio.run(main())


@pytest.mark.parametrize("failure", [StoreError("no space"), ZeroDivisionError("no space")], ids=["disk", "bug"])
def test_a_failure_at_a_deadline_stops_the_run_though_every_slot_is_taken(failure: Exception) -> None:
    with pytest.raises(RollbookError, match="no space"):
        stops_within(5, Deaf(lambda _: 60.0), Full(failure), [book(2)], concurrency=2, group_seconds=0.02)


def test_the_first_failure_is_what_is_raised_whatever_it_brings_about() -> None:
    class Counts(Heard):
        failures = 0

        def ended(self, outcome: Outcome, *, late: bool) -> None:
            self.closed(outcome)

        def closed(self, closed: object) -> None:
            self.failures += 1
            raise StoreError(f"failure {self.failures}")

    heard = Counts()
    with pytest.raises(StoreError, match="failure 1"):
        stops_within(5, Carries(outcome), heard, [book(2)], concurrency=2)
    assert heard.failures == 2, "both orders ended in the same moment"


def test_what_fails_over_a_late_end_behind_the_last_group_is_raised() -> None:
    class Late(Heard):
        def ended(self, outcome: Outcome, *, late: bool) -> None:
            if late:
                raise StoreError("no space for what came late")

    with pytest.raises(StoreError, match="came late"):
        stops_within(
            5,
            Deaf(lambda order: 0.2 if order.attempt == 0 else outcome(order)),
            Late(),
            [book(1)],
            concurrency=2,
            order_seconds=0.05,
        )
