"""The limiter: never more inside than it lets in, and nothing is lost to a cancellation."""

from __future__ import annotations

import asyncio

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
