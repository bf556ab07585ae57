"""Shared rates: never more in any second than was asked for, over processes; a pause holds for all; asking never
waits."""

from __future__ import annotations

import asyncio
import fcntl
import itertools
import os
import struct
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rollbook.errors import StoreError
from rollbook.rollout import Limiter
from rollbook.rollout.rates import MARGIN, SharedRate, rates_folder

ENTER = """
import asyncio, sys, time
from pathlib import Path
from rollbook.rollout import Limiter
from rollbook.rollout.rates import SharedRate

async def main(path, per_second, burst, count):
    limiter = Limiter("sandbox", rate=SharedRate(Path(path), float(per_second), int(burst)))
    async def enter():
        async with limiter.slot():
            print(time.monotonic(), flush=True)
    async with asyncio.TaskGroup() as group:
        for _ in range(int(count)):
            group.create_task(enter())

asyncio.run(main(*sys.argv[1:]))
"""


def most_in_a_second(moments: list[float]) -> int:
    return max(sum(begin <= moment < begin + 1.0 for moment in moments) for begin in moments)


def entries(processes: int, *arguments: object) -> list[float]:
    """When so many processes got in, each as often as told."""
    command = [sys.executable, "-c", ENTER, *map(str, arguments)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(processes)]
    said = [process.communicate(timeout=60)[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return sorted(float(line) for each in said for line in each.splitlines())


@pytest.mark.parametrize("burst", [1, 20])
def test_no_second_has_more_over_processes(tmp_path: Path, burst: int) -> None:
    moments = entries(3, tmp_path / "a.rate", 20, burst, 14)
    assert len(moments) == 42
    assert most_in_a_second(moments) <= 20
    assert moments[-1] - moments[0] < 8.0


def granted(rate: SharedRate, seconds: float) -> list[float]:
    """When it grants to somebody who always asks again at once."""
    moments, end = list[float](), time.monotonic() + seconds
    while time.monotonic() < end:
        wait = rate.take()
        if wait == 0.0:
            moments.append(time.monotonic())
        else:
            time.sleep(min(wait, 0.05))
    return moments


def test_a_burst_comes_at_once_and_single_grants_evenly(tmp_path: Path) -> None:
    together = granted(SharedRate(tmp_path / "a", 4, 4), 0.5)
    assert len(together) == 4
    assert together[-1] - together[0] < 0.2
    single = granted(SharedRate(tmp_path / "b", 10, 1), 0.65)
    assert 5 <= len(single) <= 7
    assert min(late - early for early, late in itertools.pairwise(single)) >= 0.1


def test_a_pause_holds_for_all_and_the_longer_one_stays(tmp_path: Path) -> None:
    one, other = SharedRate(tmp_path / "a", 100), SharedRate(tmp_path / "a", 100)
    one.pause(0.3)
    other.pause(0.1)
    assert 0.2 < other.take() <= 0.3
    assert 0.2 < one.take() <= 0.3
    time.sleep(0.31)
    assert other.take() == 0.0


def test_asking_never_waits_for_the_lock(tmp_path: Path) -> None:
    rate, other = SharedRate(tmp_path / "a", 5), SharedRate(tmp_path / "a", 5)
    holder = os.open(tmp_path / "a", os.O_RDWR)
    fcntl.flock(holder, fcntl.LOCK_EX)
    began = time.monotonic()
    assert 0.0 < rate.take() <= 0.002
    assert not rate.pause(5.0)
    assert time.monotonic() - began < 0.1
    os.close(holder)
    assert rate.pause(5.0)
    assert other.take() > 4.0


def test_a_limiter_asks_again_until_all_are_paused(tmp_path: Path) -> None:
    async def scenario() -> float:
        limiter = Limiter("sandbox", rate=SharedRate(tmp_path / "a", 5))
        holder = os.open(tmp_path / "a", os.O_RDWR)
        fcntl.flock(holder, fcntl.LOCK_EX)
        limiter.pause(5.0)
        await asyncio.sleep(0.02)
        os.close(holder)
        await asyncio.sleep(0.05)
        return SharedRate(tmp_path / "a", 5).take()

    assert asyncio.run(scenario()) > 4.0


def test_grants_of_before_a_restart_of_the_machine_are_none(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(struct.pack("<3d", 1e12, 1e12, 1e12))
    assert SharedRate(path, 1).take() == 0.0


def test_what_is_no_list_of_grants_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"nonsense and")
    with pytest.raises(StoreError, match="delete it"):
        SharedRate(tmp_path / "a", 1).take()
    with pytest.raises(StoreError, match="cannot be kept"):
        SharedRate(tmp_path / "a" / "b", 1)


def test_waiting_for_the_rate_does_not_hold_the_loop_up(tmp_path: Path) -> None:
    async def scenario() -> float:
        limiter, late = Limiter("sandbox", rate=SharedRate(tmp_path / "a", 20)), list[float]()

        async def enter() -> None:
            async with limiter.slot():
                pass

        async def tick() -> None:
            while True:
                began = time.monotonic()
                await asyncio.sleep(0.01)
                late.append(time.monotonic() - began - 0.01)

        ticking = asyncio.create_task(tick())
        async with asyncio.TaskGroup() as group:
            for _ in range(8):
                group.create_task(enter())
        ticking.cancel()
        await asyncio.wait((ticking,))
        return sorted(late)[len(late) * 3 // 4]

    assert asyncio.run(scenario()) < 0.05


def test_a_rate_is_not_kept_where_somebody_else_has_his_hands(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_bytes(b"x" * 16)
    (tmp_path / "engine.rate").symlink_to(mine)
    with pytest.raises(StoreError, match="cannot be kept"):
        SharedRate(tmp_path / "engine.rate", 1.0)
    assert mine.read_bytes() == b"x" * 16
    if os.getuid() == 0:
        os.chown(tmp_path, 65534, -1)
        with pytest.raises(StoreError, match="another user"):
            SharedRate(tmp_path / "judge.rate", 1.0)


def test_a_users_rates_are_in_one_place() -> None:
    assert str(os.getuid()) in rates_folder().name
    assert MARGIN > 1
