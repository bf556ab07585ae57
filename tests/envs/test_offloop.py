"""Work beside the loop: results and errors come back, the loop goes on, and nothing outlives its caller."""

from __future__ import annotations

import asyncio
import contextvars
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from rollbook import check_env
from rollbook.envs import Environment, ProcessLost, close_processes, compute, in_process, off_loop
from rollbook.envs.offloop import cores
from rollbook.envs.process_pool import ProcessPool
from rollbook.errors import UsageError
from rollbook.rewards import score_trace
from rollbook.trace import Ending, Reason, Task, Trace, TraceHead

NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="nobody")


def burn(seconds: float) -> int:
    """Computes, and lets nobody else do so."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(1000))
    return os.getpid()


def fails(text: str) -> None:
    raise KeyError(text)


class Odd(Exception):
    """An error that does not survive pickling."""

    def __init__(self, one: int, two: int) -> None:
        super().__init__(f"{one} {two}")


def odd() -> None:
    raise Odd(1, 2)


def dies() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def gives_a_lock() -> Any:
    return threading.Lock()


def played(work: Coroutine[Any, Any, Any]) -> Any:
    async def scenario() -> Any:
        try:
            return await work
        finally:
            await close_processes()

    return asyncio.run(scenario())


async def thread_of(name: str) -> tuple[str, int]:
    NAME.set(name)
    return await off_loop(lambda: (NAME.get(), threading.get_ident()))


def test_a_thread_has_the_callers_context() -> None:
    name, thread = played(thread_of("me"))
    assert (name, thread == threading.get_ident()) == ("me", False)


@pytest.mark.parametrize("beside", [off_loop, in_process])
def test_errors_come_back_as_they_are(beside: Any) -> None:
    with pytest.raises(KeyError, match="gone"):
        played(beside(fails, "gone"))


def test_a_cancelled_caller_is_free_at_once() -> None:
    async def scenario() -> float:
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await off_loop(time.sleep, 0.6)
        return time.monotonic() - began

    assert asyncio.run(scenario()) < 0.5


def test_the_loop_goes_on_while_a_process_computes_and_one_process_serves_again() -> None:
    async def scenario() -> tuple[set[int], float]:
        pids = {await in_process(burn, 0.0)}
        late, began = 0.0, time.monotonic()
        running = asyncio.create_task(in_process(burn, 0.3))
        while not running.done():
            await asyncio.sleep(0.01)
            late, began = max(late, time.monotonic() - began - 0.01), time.monotonic()
        return pids | {await running}, late

    pids, late = played(scenario())
    assert len(pids) == 1
    assert os.getpid() not in pids
    assert late < 0.2


def test_what_cannot_be_sent_is_refused_and_what_cannot_come_back_is_told() -> None:
    with pytest.raises(UsageError, match="cannot be sent"):
        played(in_process(lambda: 1))
    main = eval("lambda: 1", {"__name__": "__main__"})
    with pytest.raises(UsageError, match="move it into a module"):
        played(in_process(main))
    with pytest.raises(ProcessLost, match="Odd: 1 2"):
        played(in_process(odd))
    with pytest.raises(ProcessLost, match="cannot be sent back"):
        played(in_process(gives_a_lock))


def test_a_process_that_dies_is_told_and_another_takes_its_place() -> None:
    async def scenario() -> int:
        with pytest.raises(ProcessLost, match="exit code -9"):
            await in_process(dies)
        return await in_process(burn, 0.0)

    assert played(scenario()) > 0


def test_a_process_that_died_while_it_waited_is_not_asked() -> None:
    async def work() -> tuple[int, int]:
        first = await in_process(burn, 0.0)
        os.kill(first, signal.SIGKILL)
        assert wait_until_gone(first)
        return first, await in_process(burn, 0.0)

    first, second = played(work())
    assert first != second


def test_ctrl_c_is_heard_by_the_parent_alone() -> None:
    async def work() -> tuple[int, int]:
        first = await in_process(burn, 0.0)
        os.kill(first, signal.SIGINT)
        return first, await in_process(burn, 0.0)

    first, second = played(work())
    assert first == second


def alive(pid: int) -> bool:
    """Runs, and is no zombie."""
    found = subprocess.run(["ps", "-o", "stat=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
    return bool(found.strip()) and not found.startswith("Z")


def wait_until_gone(pid: int) -> bool:
    end = time.monotonic() + 10
    while alive(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not alive(pid)


def test_a_cancelled_call_kills_its_process() -> None:
    async def scenario() -> int:
        pool = ProcessPool(1)
        pid = await pool.call(os.getpid)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2):
                await pool.call(burn_for_long)
        other = await pool.call(os.getpid)
        assert other != pid
        pool.close()
        return pid

    assert not alive(asyncio.run(scenario()))


def burn_for_long() -> None:
    burn(60.0)


PARENT = """
import asyncio, os, sys
from rollbook.envs.process_pool import ProcessPool
from tests.envs.test_offloop import burn_for_long

async def main():
    pool = ProcessPool(1)
    print(await pool.call(os.getpid), flush=True)
    await pool.call(burn_for_long)

asyncio.run(main())
"""


def test_a_process_ends_with_its_parent_in_the_middle_of_a_call() -> None:
    with subprocess.Popen([sys.executable, "-c", PARENT], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        time.sleep(0.2)
        assert alive(pid)
        parent.kill()
    assert wait_until_gone(pid)


class PlainScorer(Environment):
    """Scores with a plain function."""

    def tasks(self, count: int, seed: int = 0) -> list[Task]:
        return [Task(id=str(number), prompt="?") for number in range(count)]

    def score(self, trace: Trace) -> float:  # pyright: ignore[reportIncompatibleMethodOverride]
        time.sleep(0.2)
        return float(threading.current_thread() is not threading.main_thread())


class ReturnsAsync(PlainScorer):
    """A plain function that gives something to await."""

    def score(self, trace: Trace) -> Any:
        async def later() -> float:
            return 0.5

        return later()


def ended() -> Trace:
    trace = Trace(TraceHead(rollout="r", group="g", task=Task(id="t", prompt="?"), policies=()))
    trace.end(Ending(Reason.FINAL_ANSWER))
    return trace


def test_a_plain_scorer_runs_in_a_thread_and_is_accepted() -> None:
    async def scenario() -> tuple[list[float | None], float]:
        traces, began = [ended() for _ in range(4)], time.monotonic()
        async with asyncio.TaskGroup() as group:
            for trace in traces:
                group.create_task(score_trace(PlainScorer(), trace))
        return [trace.reward for trace in traces], time.monotonic() - began

    rewards, took = asyncio.run(scenario())
    assert rewards == [1.0] * 4
    assert took < 0.7
    assert asyncio.run(check_env(PlainScorer, count=2)) == []


def test_a_plain_scorer_that_takes_too_long_leaves_no_reward() -> None:
    trace = ended()
    asyncio.run(score_trace(PlainScorer(), trace, seconds=0.05))
    assert trace.reward is None
    assert "did not return within 0.05 s" in trace.tail.scoring.reason


def test_what_a_plain_scorer_gives_to_await_is_awaited() -> None:
    trace = ended()
    asyncio.run(score_trace(ReturnsAsync(), trace))
    assert trace.reward == 0.5


def test_no_more_compute_at_once_than_there_are_cores() -> None:
    running, most, guard = 0, 0, threading.Lock()

    def work() -> None:
        nonlocal running, most
        with guard:
            running += 1
            most = max(most, running)
        time.sleep(0.01)
        with guard:
            running -= 1

    async def scenario() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4 * cores()):
                group.create_task(compute(work))

    asyncio.run(scenario())
    assert most == cores()
