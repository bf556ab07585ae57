"""The worker pool, over workers that die as they are told: who gets an order, who takes a dead one's place, and what a
death costs the orders."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.rewards import Outcome
from rollbook.rollout.pool import (
    DiedLoading,
    GroupBook,
    NotTaken,
    Order,
    Result,
    Scheduler,
    Worker,
    WorkerLost,
    WorkerPool,
    WorkersDie,
)
from rollbook.rollout.pool.book import MAX_LOST
from rollbook.rollout.snapshot import Snapshot
from rollbook.trace import Reason
from tests.rollout.pool.pooled import TASK, Heard, book, outcome
from tests.rollout.skipping import run_skipping


@dataclass
class Told:
    """A worker. It carries out what it is sent when `free` is set, and dies over it where `dies` says so."""

    name: str
    dies: Callable[[Order], bool] = lambda order: False
    free: asyncio.Event = field(default_factory=asyncio.Event)
    in_flight: int = 0
    sent: list[Order] = field(default_factory=list[Order])
    cancelled: list[str] = field(default_factory=list[str])
    dead: bool = False
    closed: int = 0

    async def run(self, order: Order) -> Result:
        if self.dead:
            raise NotTaken(f"{self.name} was dead")
        self.sent.append(order)
        self.in_flight += 1
        try:
            await self.free.wait()
        finally:
            self.in_flight -= 1
        self.dead = self.dead or self.dies(order)
        if self.dead:
            raise WorkerLost(f"{self.name} died")
        return Result(rollout=order.rollout, outcome=outcome(order), retries_left=order.retries_left)

    def cancel(self, rollout: str) -> None:
        self.cancelled.append(rollout)

    def snapshot(self) -> Snapshot:
        return Snapshot(started=len(self.sent))

    async def close(self) -> None:
        self.closed += 1


@dataclass
class Team:
    """Starts `Told` workers and keeps them; `found` is what dead ones left of an order."""

    dies: Callable[[Order], bool] = lambda order: False
    free: bool = True
    found: Callable[[Order], Outcome | None] = lambda order: None
    workers: list[Told] = field(default_factory=list[Told])
    salvaged: list[tuple[str, list[str]]] = field(default_factory=list[tuple[str, list[str]]])
    starting: asyncio.Event = field(default_factory=asyncio.Event)
    """Workers are started while it is set."""

    async def start(self, number: int) -> Worker:
        await self.starting.wait()
        self.workers.append(Told(f"w{number}", self.dies))
        if self.free:
            self.workers[-1].free.set()
        return self.workers[-1]

    async def recover(self, name: str, orders: Sequence[Order]) -> Mapping[str, Result]:
        self.salvaged.append((name, [each.rollout for each in orders]))
        found = [(each, self.found(each)) for each in orders]
        return {
            order.rollout: Result(rollout=order.rollout, outcome=kept, retries_left=order.retries_left)
            for order, kept in found
            if kept is not None
        }

    def pool(self, size: int) -> WorkerPool:
        self.starting.set()
        return WorkerPool(size, self.start, self.recover)


def order(member: int = 0) -> Order:
    return Order(group="g", task=TASK, member=member, retries_left=3)


def test_an_order_goes_to_the_least_busy_worker() -> None:
    async def main() -> None:
        team = Team(free=False)
        async with team.pool(3) as pool, asyncio.TaskGroup() as tasks:
            for member in range(7):
                tasks.create_task(pool.run(order(member)))
                await asyncio.sleep(0)
            assert sorted(worker.in_flight for worker in team.workers) == [2, 2, 3]
            assert (pool.in_flight, pool.snapshot().started) == (7, 7)
            for worker in team.workers:
                worker.free.set()
        assert [worker.closed for worker in team.workers] == [1, 1, 1]
        assert pool.snapshot().started == 7, "those that are gone count on"

    asyncio.run(main())


def test_a_death_is_told_to_each_order_once_and_what_was_left_is_salvaged_once() -> None:
    async def main() -> None:
        team = Team(free=False, found=lambda order: outcome(order, Reason.INTERRUPTED, None) if order.member else None)
        async with team.pool(1) as pool:
            running = [asyncio.create_task(pool.run(order(member))) for member in range(3)]
            await asyncio.sleep(0)
            team.workers[0].dead = True
            team.workers[0].free.set()
            results = await asyncio.gather(*running)
            assert [result is not None for result in results] == [False, True, True]
            assert team.salvaged == [("w0", ["g-0", "g-1", "g-2"])]
            assert [worker.name for worker in pool.workers] == ["w1"]
            assert team.workers[0].closed == 1

    asyncio.run(main())


def test_an_order_that_comes_to_a_worker_that_died_idle_goes_to_the_next_one() -> None:
    async def main() -> None:
        team = Team()
        async with team.pool(2) as pool:
            for worker in team.workers:
                worker.dead = True
            results = await asyncio.gather(*(pool.run(order(member)) for member in range(4)))
            assert [result is not None and result.rollout for result in results] == [f"g-{n}" for n in range(4)]
            assert all(orders == [] for _, orders in team.salvaged), "nothing of theirs was with the dead"
            assert sum(len(worker.sent) for worker in team.workers) == 4

    asyncio.run(main())


def test_a_worker_that_died_idle_costs_a_member_none_of_its_losses() -> None:
    """As documented: rollouts whose worker dies run again, three times at most."""

    class Cursed(Team):
        """Each worker is dead when its first order comes, but for every second one, which dies over it."""

        async def start(self, number: int) -> Worker:
            worker = await super().start(number)
            self.workers[-1].dead = number % 2 == 0 and number < 2 * MAX_LOST
            return worker

    async def main(losses: int) -> Heard:
        left, heard = iter([book(1)]), Heard()
        died: list[Order] = []

        def dies(order: Order) -> bool:
            died.append(order)
            return len(died) <= losses

        async def next_group() -> GroupBook | None:
            return next(left, None)

        async with Cursed(dies=dies).pool(3) as pool:
            await Scheduler(pool, heard, concurrency=1).run(next_group)
        assert {each.retries_left for each in died} == {3}, "nor requests that may be made again"
        return heard

    (closed,) = run_skipping(main(MAX_LOST)).groups
    assert (closed.used, closed.unrecorded) == (1, 0)
    (closed,) = run_skipping(main(MAX_LOST + 1)).groups
    assert (closed.used, closed.unrecorded) == (0, 1)


def test_an_order_that_is_cancelled_while_a_dead_workers_place_is_taken_never_starts() -> None:
    async def main() -> None:
        team = Team()
        async with team.pool(1) as pool:
            team.workers[0].dead = True
            team.starting.clear()
            running = asyncio.create_task(pool.run(order()))
            for _ in range(20):
                await asyncio.sleep(0)
            pool.cancel("g-0")
            team.starting.set()
            assert await running is None
            assert [worker.sent for worker in team.workers] == [[], []]

    asyncio.run(main())


def test_workers_that_die_idle_one_after_the_other_stop_the_run() -> None:
    class Doomed(Team):
        async def start(self, number: int) -> Worker:
            worker = await super().start(number)
            self.workers[-1].dead = True
            return worker

    async def main() -> None:
        async with Doomed().pool(1) as pool:
            await pool.run(order())

    with pytest.raises(WorkersDie, match="died 4 times in a row, the last one so: w3 was dead"):
        asyncio.run(main())


def test_a_start_that_fails_closes_those_that_had_started() -> None:
    class Fails(Team):
        async def start(self, number: int) -> Worker:
            if number == 2:
                raise DiedLoading("no such model")
            return await super().start(number)

    async def main(team: Team) -> None:
        async with team.pool(3):
            pass

    team = Fails()
    with pytest.raises(DiedLoading):
        asyncio.run(main(team))
    assert [worker.closed for worker in team.workers] == [1, 1]


@settings(max_examples=60, deadline=None)
@given(deaths=st.lists(st.booleans(), min_size=1, max_size=12), size=st.integers(1, 3), orders=st.integers(1, 6))
def test_whoever_dies_each_order_is_answered_once_and_the_pool_keeps_its_size(
    deaths: list[bool], size: int, orders: int
) -> None:
    async def main() -> None:
        fates = iter(deaths)
        team = Team(dies=lambda order: next(fates, False))
        async with team.pool(size) as pool:
            try:
                results = await asyncio.gather(*(pool.run(order(member)) for member in range(orders)))
            except WorkersDie:
                assert sum(deaths) > 3 * size
                return
            answered = [each.rollout for each in results if each is not None]
            assert len(set(answered)) == len(answered)
            lost = [rollout for _, rollouts in team.salvaged for rollout in rollouts]
            assert sorted([*answered, *lost]) == sorted(f"g-{member}" for member in range(orders))
            assert len(pool.workers) == size
        assert all(worker.closed == 1 for worker in team.workers)

    asyncio.run(main())
