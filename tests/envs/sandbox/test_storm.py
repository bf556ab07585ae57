"""Many at once, and an owner that is killed: nothing is left of either."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from rollbook.envs.sandbox import Sandbox, SandboxLifecycle, SandboxSpec, Swept, leftovers, sandbox, sweep
from rollbook.envs.sandbox.groups import find_parents
from rollbook.envs.sandbox.host_processes import labelled
from rollbook.envs.sandbox.namespaces import Namespaces
from tests.envs.sandbox.made import LIMITS, SHELL, TAG, until

OWNER = """
import asyncio, sys
from pathlib import Path
from rollbook.envs.sandbox import SandboxLifecycle, SandboxSpec
from tests.envs.sandbox.made import LIMITS, provider

made, rest = provider(sys.argv[2]), sys.argv[3]

async def main():
    lifecycle = SandboxLifecycle(Path(sys.argv[1]))
    boxes = [await lifecycle.open(made, SandboxSpec(LIMITS)) for _ in range(3)]
    async with asyncio.TaskGroup() as group:
        for box in boxes:
            group.create_task(box.exec(["sh", "-c", f"(setsid sleep {rest} &) ; sleep {rest}"], seconds=70))
        print("running", flush=True)

asyncio.run(main())
"""


def remains(ids: set[str]) -> list[str]:
    """Processes, mounts and control groups of sandboxes."""
    found = [f"process {pid}" for each in ids for pid in labelled(f"ROLLBOOK_SANDBOX={each}")]
    found += [str(path) for parent in find_parents() for path in parent.glob("rollbook-*") if path.name[9:] in ids]
    return found


async def swept_twice(folder: Path) -> tuple[Swept, Swept]:
    """As by two owners that start at once."""
    async with asyncio.TaskGroup() as group:
        one, two = group.create_task(sweep(folder)), group.create_task(sweep(folder))
    return one.result(), two.result()


def sleepers(number: int = 71) -> list[str]:
    found: list[str] = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            line = path.read_bytes()
        except OSError:
            continue
        if line.startswith(f"sleep\x00{number}.{TAG}".encode()):
            found.append(path.parent.name)
    return found


def test_a_hundred_at_once_leave_nothing(best: Namespaces, tmp_path: Path) -> None:
    lifecycle, ids = SandboxLifecycle(tmp_path / "t"), set[str]()
    script = ["sleep 0.3; echo $0", f"sleep 81.{TAG} & exit 1", "kill -9 $$", "exec sleep 30"]

    async def one(number: int) -> None:
        box = await lifecycle.open(best, SandboxSpec(LIMITS))
        ids.add(box.info.id)
        try:
            done = await box.exec([*SHELL, script[number % 4], str(number)], seconds=1.0 if number % 4 == 3 else 20.0)
            assert number % 4 or done.stdout == f"{number}\n".encode()
        finally:
            await box.close()

    async def all_at_once() -> None:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                group.create_task(one(number))

    mounts = len(Path("/proc/self/mounts").read_text().splitlines())
    open_files = len(os.listdir("/proc/self/fd"))
    asyncio.run(all_at_once())
    assert len(ids) == 100
    assert remains(ids) == []
    assert list(lifecycle.tickets.folder.iterdir()) == []
    assert len(Path("/proc/self/mounts").read_text().splitlines()) == mounts
    assert len(os.listdir("/proc/self/fd")) == open_files


def test_many_cancelled_in_the_middle_leave_nothing(usual: Namespaces, tmp_path: Path) -> None:
    lifecycle, ids = SandboxLifecycle(tmp_path / "t"), set[str]()

    async def one(number: int) -> None:
        box = await lifecycle.open(usual, SandboxSpec(LIMITS))
        ids.add(box.info.id)
        try:
            await box.exec([*SHELL, f"sleep 91.{TAG} & sleep 91.{TAG}"], seconds=60.0)
        finally:
            await box.close()

    async def cancel_all() -> None:
        tasks = [asyncio.create_task(one(number)) for number in range(24)]
        for number, task in enumerate(tasks):
            await asyncio.sleep(0.01)
            tasks[number].cancel()
            del task
        await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(cancel_all())
    assert remains(ids) == []
    assert list(lifecycle.tickets.folder.iterdir()) == []


def killed_owner(made: Namespaces, folder: Path) -> set[str]:
    """Three sandboxes with two processes each, whose owner was killed."""
    name = f"{made.kind}-{made.launch.rights}"
    before = {each.id for each in SandboxLifecycle(folder).tickets.read_all()[0]}
    with subprocess.Popen(
        [sys.executable, "-c", OWNER, str(folder), name, f"71.{TAG}"], stdout=subprocess.PIPE
    ) as owner:
        try:
            assert owner.stdout is not None
            assert owner.stdout.readline() == b"running\n"
            asyncio.run(until(lambda: len(sleepers()) == 6))
            ids = {each.id for each in SandboxLifecycle(folder).tickets.read_all()[0]} - before
            assert len(ids) == 3
            assert leftovers(folder) == []
        finally:
            owner.send_signal(signal.SIGKILL)
    assert {each.id for each in leftovers(folder)} == ids
    return ids


def test_a_sweep_ends_nothing_but_what_dead_owners_left(usual: Namespaces, tmp_path: Path) -> None:
    """A living neighbour in the same folder, and processes of the host that look alike, run on; so do they where it is
    the first opening of a process that sweeps."""
    folder = tmp_path / "t"
    lifecycle = SandboxLifecycle(folder)

    async def beside(box: Sandbox, act: Callable[[], Awaitable[object]]) -> None:
        task = asyncio.create_task(box.exec([*SHELL, f"sleep 72.{TAG} & echo here; wait"], seconds=60.0))
        await until(lambda: bool(sleepers(72)))
        alive = sleepers(72)
        await act()
        assert (sleepers(72), task.done()) == (alive, False)
        assert (await box.exec(["cat", "mine"])).stdout == b"x"
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    async def open_another() -> None:
        async with sandbox(folder=folder) as other:
            assert (await other.exec(["true"])).ok

    async def live(act: Callable[[], Awaitable[object]], ready: Callable[[], set[str]]) -> None:
        box = await lifecycle.open(usual, SandboxSpec(LIMITS))
        try:
            await box.write("mine", b"x")
            ids = await asyncio.to_thread(ready)
            alike = {**os.environ, "ROLLBOOK_SANDBOX": f"{next(iter(ids))}0"}
            bystander = await asyncio.create_subprocess_exec("sleep", f"73.{TAG}", env=alike, start_new_session=True)
            try:
                await beside(box, act)
                assert bystander.returncode is None
            finally:
                bystander.kill()
                await bystander.wait()
            assert remains(ids) == []
            assert {each.id for each in lifecycle.tickets.read_all()[0]} == {box.info.id}
        finally:
            await box.close()

    for act in (lambda: sweep(folder), open_another):
        asyncio.run(live(act, lambda: killed_owner(usual, folder)))
        assert list(folder.iterdir()) == []


def test_what_a_killed_owner_leaves_is_swept(usual: Namespaces, tmp_path: Path) -> None:
    folder = tmp_path / "t"
    ids = killed_owner(usual, folder)
    first, second = asyncio.run(swept_twice(folder))
    assert {*first.removed, *second.removed} == ids
    assert (first.remaining, second.remaining) == ((), ())
    assert remains(ids) == []
    assert sleepers() == []
    assert list(folder.iterdir()) == []
