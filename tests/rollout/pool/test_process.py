"""Worker processes, real ones: ready when they say so, reported when they die, gone when they should be."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import StoreError, UsageError
from rollbook.rollout.pool import NotTaken, Order, ProcessWorker, Result, Worker, WorkerLost, WorkerPool, WorkersDie
from rollbook.rollout.pool.patience import PATIENCE, Patience
from rollbook.trace import Reason, Task

COMMAND = (sys.executable, "-m", "tests.rollout.pool.doing")


def order(prompt: str = "x", member: int = 0) -> Order:
    return Order(group="g", task=Task(id="t", prompt=prompt), member=member)


def with_worker(use: Callable[[ProcessWorker], Awaitable[None]], patience: Patience = PATIENCE, **spec: Any) -> None:
    async def main() -> None:
        worker = await ProcessWorker.start("w", COMMAND, spec, patience=patience)
        pid = worker.pid
        try:
            async with asyncio.timeout(30):
                await use(worker)
        finally:
            await worker.close()
        assert pid is not None
        assert not alive(pid)

    asyncio.run(main())


def test_orders_are_carried_out_and_results_come_as_they_end() -> None:
    async def use(worker: ProcessWorker) -> None:
        results = await asyncio.gather(*(worker.run(order(member=n)) for n in range(5)))
        assert [each.rollout for each in results] == [f"g-{n}" for n in range(5)]
        assert all(each.outcome is not None and each.outcome.reason is Reason.FINAL_ANSWER for each in results)
        assert worker.in_flight == 0
        while worker.snapshot().finished < 5:  # noqa: ASYNC110
            await asyncio.sleep(0.05)

    with_worker(use)


def test_a_worker_that_is_killed_loses_its_orders_and_says_how() -> None:
    async def use(worker: ProcessWorker) -> None:
        waiting = [asyncio.create_task(worker.run(order("hang", n))) for n in range(3)]
        await asyncio.sleep(0.2)
        worker.kill()
        for task in waiting:
            with pytest.raises(WorkerLost, match=r"SIGKILL(.|\n)*setting up hang"):
                await task
        with pytest.raises(NotTaken, match="SIGKILL"):
            await worker.run(order())
        assert not worker.alive

    with_worker(use)


@pytest.mark.parametrize("prompt", ["fork and die", "daemon and die"])
def test_a_worker_is_gone_when_it_is_dead_whoever_holds_its_socket(
    prompt: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def use(worker: ProcessWorker) -> None:
        with pytest.raises(WorkerLost, match="SIGKILL"):
            await worker.run(order(prompt))

    began = time.monotonic()
    with_worker(use)
    assert time.monotonic() - began < 20
    for child in children(capsys):
        if prompt == "daemon and die":
            os.kill(child, signal.SIGKILL)
        assert dies(child), "its group goes with it"


@pytest.mark.parametrize("prompt", ["fork", "thread"])
def test_what_a_worker_left_running_does_not_hold_its_end_up(prompt: str, capsys: pytest.CaptureFixture[str]) -> None:
    async def use(worker: ProcessWorker) -> None:
        assert (await worker.run(order(prompt))).outcome is not None

    began = time.monotonic()
    with_worker(use, Patience(exit=0.5))
    assert time.monotonic() - began < 20
    assert all(dies(child) for child in children(capsys))


def dies(pid: int) -> bool:
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.01)
    return not alive(pid)


def children(capsys: pytest.CaptureFixture[str]) -> list[int]:
    return [int(found) for found in re.findall(r"child (\d+)", capsys.readouterr().err)]


def test_a_signal_without_a_name_is_a_death_too() -> None:
    async def use(worker: ProcessWorker) -> None:
        with pytest.raises(WorkerLost, match=rf"killed by signal {signal.SIGRTMIN + 3}"):
            await worker.run(order("real-time signal"))

    with_worker(use)


def test_a_worker_that_says_what_nobody_understands_is_killed() -> None:
    async def use(worker: ProcessWorker) -> None:
        with pytest.raises(WorkerLost, match="not a message between worker and parent"):
            await worker.run(order("babble"))

    with_worker(use)


def test_cancelling_an_order_ends_its_rollout_as_cancelled() -> None:
    async def use(worker: ProcessWorker) -> None:
        running = asyncio.create_task(worker.run(order("hang")))
        while worker.snapshot().in_flight < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        worker.cancel("g-0")
        worker.cancel("another")
        result = await running
        assert result.outcome is not None
        assert result.outcome.reason is Reason.CANCELLED

    with_worker(use)


@pytest.mark.parametrize("orders", [1, 20])
def test_a_cancellation_right_behind_its_order_is_heeded(orders: int) -> None:
    async def use(worker: ProcessWorker) -> None:
        running = [asyncio.create_task(worker.run(order("hang", n))) for n in range(orders)]
        await asyncio.sleep(0)
        for n in range(orders):
            worker.cancel(f"g-{n}")
        for result in await asyncio.gather(*running):
            assert result.outcome is None or result.outcome.reason is Reason.CANCELLED

    with_worker(use)


def test_what_stops_a_run_comes_over_as_itself() -> None:
    async def use(worker: ProcessWorker) -> None:
        with pytest.raises(StoreError, match="no space left"):
            await worker.run(order())

    with_worker(use, disk="full")


def test_a_worker_whose_loop_is_blocked_is_killed() -> None:
    async def use(worker: ProcessWorker) -> None:
        with pytest.raises(WorkerLost, match="said nothing"):
            await worker.run(order("block"))

    with_worker(use, Patience(silent=1.5))


def test_a_worker_ends_by_itself_where_its_parent_is_gone() -> None:
    async def main() -> int:
        worker = await ProcessWorker.start("w", COMMAND, {})
        running = asyncio.create_task(worker.run(order("hang")))
        await asyncio.sleep(0.2)
        pid = worker.pid
        assert pid is not None
        for task in (running, *worker._tasks):
            task.cancel()
        assert worker._writer is not None
        worker._writer.close()
        async with asyncio.timeout(10):
            while alive(pid):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
        await worker.close()
        return pid

    asyncio.run(main())


PARENT = """
import asyncio, sys
from rollbook.rollout.pool import ProcessWorker
from tests.rollout.pool.test_process import COMMAND, order

async def main():
    worker = await ProcessWorker.start("w", COMMAND, {})
    running = asyncio.create_task(worker.run(order("block")))
    await asyncio.sleep(0.5)
    print(worker.pid, flush=True)
    await running

asyncio.run(main())
"""


def test_a_blocked_worker_does_not_outlive_its_parent() -> None:
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path), "ORPHAN_SECONDS": "0.1"}
    parent = subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, env=environment)
    assert parent.stdout is not None
    with parent.stdout as said:
        pid = int(said.readline())
        parent.kill()
        parent.wait()
    assert alive(pid)
    assert dies(pid)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


# Pools


def pool_of(size: int, workers: list[ProcessWorker], salvaged: list[str], **spec: Any) -> WorkerPool:
    async def start(number: int) -> Worker:
        workers.append(await ProcessWorker.start(f"w{number}", COMMAND, spec))
        return workers[-1]

    async def recover(name: str, orders: Any) -> dict[str, Result]:
        salvaged.append(name)
        return {each.rollout: Result(rollout=each.rollout, outcome=None) for each in orders if each.member == 0}

    return WorkerPool(size, start, recover)


def test_work_goes_to_the_least_busy_and_a_dead_worker_is_replaced() -> None:
    async def main() -> None:
        workers, salvaged = list[ProcessWorker](), list[str]()
        async with pool_of(2, workers, salvaged) as executor:
            running = [asyncio.create_task(executor.run(order("hang", n))) for n in range(4)]
            await asyncio.sleep(0.3)
            assert [worker.in_flight for worker in workers] == [2, 2]
            workers[0].kill()
            lost = [task for n, task in enumerate(running) if n % 2 == 0]
            results = await asyncio.gather(*lost)
            assert [each is None for each in results] == [False, True], "what was salvaged, and what was not"
            assert salvaged == [workers[0].name]
            assert len(executor.workers) == 2
            assert (await executor.run(order("x", 9))) is not None
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
        assert not any(worker.pid for worker in workers)

    asyncio.run(main())


def test_an_order_that_comes_to_a_process_that_died_idle_is_carried_out_by_another() -> None:
    async def main() -> None:
        workers, salvaged = list[ProcessWorker](), list[str]()
        async with pool_of(1, workers, salvaged) as executor:
            workers[0].kill()
            while not workers[0]._over:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            result = await executor.run(order("x", 7))
            assert result is not None
            assert result.outcome is not None
            assert salvaged == [workers[0].name]

    asyncio.run(main())


def test_an_order_that_is_cancelled_while_it_waits_for_a_worker_never_starts() -> None:
    async def main() -> None:
        workers = list[ProcessWorker]()
        async with pool_of(1, workers, []) as executor:
            first = asyncio.create_task(executor.run(order("hang", 1)))
            await asyncio.sleep(0.1)
            workers[0].kill()
            while executor.workers:  # noqa: ASYNC110
                await asyncio.sleep(0.005)
            second = asyncio.create_task(executor.run(order("hang", 2)))
            await asyncio.sleep(0)
            executor.cancel("g-2")
            async with asyncio.timeout(20):
                assert await asyncio.gather(first, second) == [None, None]

    asyncio.run(main())


def test_a_pool_whose_workers_all_die_stops_the_run() -> None:
    async def main() -> None:
        async with pool_of(1, [], []) as executor:
            with contextlib.suppress(AssertionError):
                for n in range(20):
                    await executor.run(order("die", n))

    with pytest.raises(WorkersDie, match="died 4 times in a row"):
        asyncio.run(main())


def test_a_worker_that_cannot_be_replaced_stops_whoever_asks() -> None:
    async def start(number: int) -> Worker:
        if number:
            raise UsageError("no further one")
        return await ProcessWorker.start("w0", COMMAND, {})

    async def recover(name: str, orders: Any) -> dict[str, Result]:
        return {}

    async def main() -> None:
        async with WorkerPool(1, start, recover) as executor, asyncio.timeout(20):
            for n in range(2):
                with pytest.raises(UsageError, match="no further one"):
                    await executor.run(order("die", n))

    asyncio.run(main())


@pytest.mark.parametrize("dying", [1, 9])
def test_a_replacement_that_dies_while_it_loads_is_replaced_too(dying: int) -> None:
    started = list[int]()

    async def start(number: int) -> Worker:
        started.append(number)
        spec = {"start": "die"} if 0 < number <= dying else {}
        return await ProcessWorker.start(f"w{number}", COMMAND, spec)

    async def recover(name: str, orders: Any) -> dict[str, Result]:
        return {}

    async def main() -> None:
        async with WorkerPool(1, start, recover) as executor:
            assert await executor.run(order("die")) is None
            assert await executor.run(order("x")) is not None

    if dying == 1:
        asyncio.run(main())
        assert started == [0, 1, 2]
        return
    with pytest.raises(WorkersDie, match="died 4 times in a row"):
        asyncio.run(main())


def test_a_pool_that_cannot_start_leaves_nothing_running() -> None:
    async def main() -> None:
        async with pool_of(2, [], [], start="usage"):
            pass

    with pytest.raises(UsageError, match="no such model"):
        asyncio.run(main())


def test_ctrl_c_reaches_the_parent_alone() -> None:
    async def use(worker: ProcessWorker) -> None:
        assert worker.pid is not None
        assert os.getpgid(worker.pid) != os.getpgid(0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(worker.pid, signal.SIGCONT)

    with_worker(use)
