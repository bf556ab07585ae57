"""A plain sandbox says that it is none, and still ends what it starts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec
import pytest

from rollbook.envs.sandbox import Cause, FileRefused, NotIsolated, Sandbox, SandboxLimits, open_sandbox
from tests.envs.sandbox.made import LIMITS, SHELL, TAG, until
from tests.envs.sandbox.test_hostile import commands


def use(folder: Path, work: Callable[[Sandbox], Awaitable[None]], limits: SandboxLimits = LIMITS) -> None:
    async def inside() -> None:
        with pytest.warns(NotIsolated, match="isolates nothing"):
            box = await open_sandbox("plain", limits=limits, folder=folder / "t")
        try:
            await work(box)
        finally:
            await box.close()

    asyncio.run(inside())
    assert list((folder / "t").iterdir()) == []


def test_it_says_so(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> None:
        assert (box.info.isolates, box.info.network, box.info.groups) == (False, True, False)

    use(tmp_path, work)


def test_it_runs_reads_and_writes(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> None:
        await box.write("a/b", b"\xff")
        assert (await box.exec(["cat", "a/b"])).stdout == b"\xff"
        assert await box.read("a/b", 1) == b"\xff"
        await box.exec([*SHELL, "ln -s /etc/passwd link; mkdir -p shut/x; chmod 0 shut"])
        for path in ("link", "../t", "none"):
            with pytest.raises(FileRefused):
                await box.read(path, 1 << 20)
        with pytest.raises(FileRefused):
            await box.write("a", b"")
        done = await box.exec([*SHELL, "echo $ROLLBOOK_TEST; exit 4"])
        assert (done.cause, done.status, done.stdout) == (Cause.EXITED, 4, b"\n")

    use(tmp_path, work)


def test_it_ends_what_it_started(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> None:
        script = f"sleep 101.{TAG} & setsid sleep 102.{TAG} & "
        assert (await box.exec([*SHELL, f"{script} sleep 0.3; exit 0"])).ok
        await until(lambda: f"\nsleep 101.{TAG}" not in commands())
        assert f"sleep 102.{TAG}" in commands()
        late = await box.exec([*SHELL, f"trap '' TERM; {script} sleep 103.{TAG}"], seconds=0.3)
        assert late.cause is Cause.TIME
        await until(lambda: f"\nsleep 103.{TAG}" not in commands())

    use(tmp_path, work)
    assert f"102.{TAG}" not in commands()


def test_limits_of_single_processes_hold(tmp_path: Path) -> None:
    async def work(box: Sandbox) -> None:
        big = await box.exec([*SHELL, "exec head -c 40M /dev/zero > big"])
        assert (big.cause, big.signal) == (Cause.DISK, 25)
        bomb = await box.exec(["python3", "-c", "bytearray(300 << 20)"])
        assert (bomb.status, bomb.cause) == (1, Cause.EXITED)

    use(tmp_path, work, msgspec.structs.replace(LIMITS, memory=128 << 20))
