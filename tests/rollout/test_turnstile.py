"""The turnstile: one at a time in each pass of the loop, in order, nobody for ever, nothing where nobody waits."""

from __future__ import annotations

import asyncio
import time

from rollbook.rollout.turnstile import Turnstile


def test_who_is_alone_does_not_wait() -> None:
    async def main() -> bool:
        stile, passed = Turnstile(), []
        asyncio.get_running_loop().call_soon(passed.append, True)
        await stile.turn()
        return bool(passed)

    assert not asyncio.run(main()), "the loop made no pass"


def test_many_go_in_order_and_the_loop_is_not_late() -> None:
    async def main() -> tuple[list[int], float]:
        stile, order, late = Turnstile(), list[int](), 0.0

        async def work(number: int) -> None:
            await stile.turn()
            order.append(number)
            end = time.perf_counter() + 0.002
            while time.perf_counter() < end:
                pass

        async with asyncio.TaskGroup() as tasks:
            for number in range(100):
                tasks.create_task(work(number))
            for _ in range(20):
                due = time.perf_counter() + 0.005
                await asyncio.sleep(0.005)
                late = max(late, time.perf_counter() - due)
        return order, late

    order, late = asyncio.run(main())
    assert order == list(range(100))
    assert late < 0.1, "all at once would take 0.2 s"


def test_who_is_cancelled_lets_the_others_through() -> None:
    async def main() -> list[int]:
        stile, order = Turnstile(), list[int]()

        async def work(number: int) -> None:
            await stile.turn()
            order.append(number)

        tasks = [asyncio.create_task(work(number)) for number in range(6)]
        await asyncio.sleep(0)
        for number in (1, 3, 5):
            tasks[number].cancel()
        await asyncio.wait(tasks, timeout=5)
        await stile.turn()
        return order

    assert asyncio.run(main()) == [0, 2, 4]
