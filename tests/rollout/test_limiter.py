"""The limiter: never more inside than it lets in, and nothing is lost to a cancellation."""

from __future__ import annotations

import asyncio
import random
import time

import pytest

from rollbook.rollout import Limiter


@pytest.mark.parametrize("limit", [1, 3, None])
def test_so_many_at_once_first_come_first_served(limit: int | None) -> None:
    async def scenario() -> None:
        limiter, most, order = Limiter("engine", limit), 0, []

        async def hold(number: int) -> None:
            nonlocal most
            async with limiter.slot():
                order.append(number)
                most = max(most, limiter.in_use)
                await asyncio.sleep(0)

        async with asyncio.TaskGroup() as group:
            for number in range(7):
                group.create_task(hold(number))
        assert order == list(range(7))
        assert most == (limit or 7)
        assert (limiter.in_use, limiter.waiting) == (0, 0)

    asyncio.run(scenario())


def test_it_can_say_who_waits_and_a_cancelled_waiter_leaves() -> None:
    async def scenario() -> None:
        limiter = Limiter("engine", 1)
        inside, leave = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            async with limiter.slot():
                inside.set()
                await leave.wait()

        first = asyncio.create_task(hold())
        await inside.wait()
        second = asyncio.create_task(hold())
        await asyncio.sleep(0)
        assert (limiter.in_use, limiter.waiting) == (1, 1)
        second.cancel()
        await asyncio.wait((second,))
        assert (limiter.in_use, limiter.waiting) == (1, 0)
        leave.set()
        await first
        async with limiter.slot():
            assert limiter.in_use == 1
        first.result()

    asyncio.run(scenario())


def test_a_holder_that_fails_gives_its_slot_back() -> None:
    async def scenario() -> None:
        limiter = Limiter("engine", 1)
        for _ in range(3):
            with pytest.raises(ZeroDivisionError):
                async with limiter.slot():
                    raise ZeroDivisionError
        assert limiter.in_use == 0

    asyncio.run(scenario())


def test_a_pause_lets_nobody_in_and_the_longer_one_stays() -> None:
    async def scenario() -> list[float]:
        limiter, came = Limiter("engine", 4, rng=random.Random(1)), list[float]()
        began = time.monotonic()

        async def enter() -> None:
            async with limiter.slot():
                came.append(time.monotonic() - began)

        async with asyncio.TaskGroup() as group, limiter.slot():
            limiter.pause(0.2)
            limiter.pause(0.05)
            for _ in range(12):
                group.create_task(enter())
            await asyncio.sleep(0)
            assert limiter.stats().waiting == 12
        stats = limiter.stats()
        assert stats.paused == pytest.approx(0.2, abs=0.01)
        assert (stats.entered, stats.in_use, stats.waiting) == (13, 0, 0)
        assert stats.waited == pytest.approx(sum(came), rel=0.1)
        return came

    came = asyncio.run(scenario())
    assert min(came) >= 0.2
    assert max(came) < 0.6


def test_who_was_turned_away_together_does_not_come_back_together() -> None:
    async def scenario() -> list[float]:
        limiter, came = Limiter("engine", rng=random.Random(2)), list[float]()

        async def enter() -> None:
            async with limiter.slot():
                came.append(time.monotonic())

        limiter.pause(0.1, spread=0.5)
        async with asyncio.TaskGroup() as group:
            for _ in range(50):
                group.create_task(enter())
        return [moment - min(came) for moment in came]

    came = asyncio.run(scenario())
    in_each_tenth = [sum(tenth / 20 <= moment < (tenth + 1) / 20 for moment in came) for tenth in range(10)]
    assert max(in_each_tenth) <= 15
    assert max(came) > 0.35


def test_a_pause_that_is_lengthened_meanwhile_is_waited_out() -> None:
    async def scenario() -> float:
        limiter = Limiter("engine", 1)
        limiter.pause(0.05, spread=0.0)

        async def lengthen() -> None:
            await asyncio.sleep(0.02)
            limiter.pause(0.2, spread=0.0)

        began = time.monotonic()
        async with asyncio.TaskGroup() as group:
            group.create_task(lengthen())
            async with limiter.slot():
                return time.monotonic() - began

    assert asyncio.run(scenario()) >= 0.21


class Counted:
    """A rate that refuses so often before each grant."""

    def __init__(self, refusals: int) -> None:
        self.refusals = self.left = refusals
        self.paused: list[float] = []

    def take(self) -> float:
        self.left -= 1
        if self.left >= 0:
            return 0.001
        self.left = self.refusals
        return 0.0

    def pause(self, seconds: float) -> bool:
        self.paused.append(seconds)
        return True


def test_a_rate_is_asked_until_it_grants_first_come_first_served() -> None:
    async def scenario() -> None:
        rate, order = Counted(2), list[int]()
        limiter = Limiter("sandbox", rate=rate)

        async def enter(number: int) -> None:
            async with limiter.slot():
                order.append(number)

        async with asyncio.TaskGroup() as group:
            for number in range(5):
                group.create_task(enter(number))
        assert order == list(range(5))
        limiter.pause(3.0)
        assert rate.paused == [pytest.approx(3.0, abs=0.1)]

    asyncio.run(scenario())


@pytest.mark.parametrize("steps", range(8))
def test_a_cancellation_at_any_moment_leaves_no_trace(steps: int) -> None:
    async def scenario() -> None:
        limiter = Limiter("sandbox", 1, rate=Counted(1))

        async def enter() -> None:
            async with limiter.slot():
                await asyncio.sleep(0)

        task = asyncio.create_task(enter())
        for _ in range(steps):
            await asyncio.sleep(0.0005)
        task.cancel()
        await asyncio.wait((task,))
        assert (limiter.in_use, limiter.waiting) == (0, 0)
        await asyncio.wait_for(enter(), 1)

    asyncio.run(scenario())
