"""One process: fed, read within bounds, and waited for, however it is left."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from collections.abc import Sequence

import pytest

from rollbook.envs.sandbox.child import Child, Ended, end_group, spawn

PYTHONLESS = {"PATH": "/usr/bin:/bin"}


def run(argv: Sequence[str], stdin: bytes = b"", seconds: float = 20.0, keep: int = 100, flood: int = 10**9) -> Ended:
    async def work() -> Ended:
        child = Child(stdin=stdin, keep=keep, flood=flood, kill=end_group)
        return await child.run(spawn(argv, PYTHONLESS), seconds)

    before = os.listdir("/proc/self/fd")
    ended = asyncio.run(work())
    assert len(os.listdir("/proc/self/fd")) == len(before)
    return ended


def test_what_goes_in_comes_out() -> None:
    data = os.urandom(300_000)
    ended = run(["cat"], data, keep=len(data))
    assert (ended.code, ended.stdout, ended.stdout_total, ended.late) == (0, data, len(data), False)


def test_who_does_not_read_its_input_is_no_problem() -> None:
    assert run(["true"], bytes(1_000_000)).code == 0
    assert run(["sh", "-c", "exec <&-; sleep 0.1"], bytes(1_000_000)).code == 0


def test_the_head_of_the_output_is_kept() -> None:
    ended = run(["sh", "-c", "printf abc; head -c 1000000 /dev/zero; printf err >&2; exit 3"], keep=4)
    assert (ended.code, ended.stdout, ended.stdout_total) == (3, b"abc\0", 1_000_003)
    assert (ended.stderr, ended.stderr_total) == (b"err", 3)


def test_a_grandchild_that_holds_the_output_does_not_hold_us() -> None:
    ended = run(["sh", "-c", "sleep 30 & echo here"])
    assert (ended.stdout, ended.late) == (b"here\n", False)
    assert ended.seconds < 10


def test_late_and_flooding_ones_are_killed() -> None:
    late = run(["sleep", "30"], seconds=0.1)
    assert (late.code, late.late, late.flooded) == (-9, True, False)
    flooded = run(["cat", "/dev/zero"], flood=100_000)
    assert (flooded.code, flooded.late, flooded.flooded) == (-9, False, True)
    assert flooded.stdout_total > 100_000


def test_a_search_for_what_a_killed_one_left_does_not_hold_the_loop() -> None:
    threads: list[bool] = []

    def kill(process: subprocess.Popen[bytes]) -> None:
        threads.append(threading.current_thread() is threading.main_thread())
        end_group(process)

    async def work(argv: Sequence[str]) -> None:
        await Child(stdin=b"", keep=1, flood=100, kill=kill).run(spawn(argv, PYTHONLESS), 20.0)

    asyncio.run(work(["sh", "-c", "kill -9 $$"]))
    asyncio.run(work(["true"]))
    assert threads == [False, True]


def test_a_cancelled_one_is_killed_and_waited_for() -> None:
    async def work() -> subprocess.Popen[bytes]:
        process = spawn(["sleep", "30"], PYTHONLESS)
        task = asyncio.create_task(Child(stdin=b"", keep=1, flood=1, kill=end_group).run(process, 20.0))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return process

    assert asyncio.run(work()).returncode == -9
