"""Sandboxes for the tests of this room, of every kind that isolates and works here.

Every probe is bounded by itself, so that one that breaks out does no harm: at most so many processes, bytes, seconds.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Awaitable, Callable
from functools import cache
from pathlib import Path
from typing import TypeVar

from rollbook.envs.sandbox import Sandbox, SandboxLifecycle, SandboxLimits, SandboxSpec
from rollbook.envs.sandbox.namespaces import Namespaces
from rollbook.envs.sandbox.opening import candidates
from rollbook.trace.ending import RolloutFailure

__all__ = ["LIMITS", "MIB", "NAMES", "SHELL", "TAG", "provider", "until", "use"]

MIB = 1 << 20
LIMITS = SandboxLimits(memory=48 * MIB, disk=8 * MIB, files=300, processes=24, output=4096, flood=8 * MIB, cpu=20)
TAG = f"7{os.getpid():08d}"
"""Part of the arguments of what the tests leave running: the same tests may run elsewhere on this machine."""
SHELL = ("/bin/sh", "-c")
Value = TypeVar("Value")


@cache
def _working() -> dict[str, Namespaces]:
    found: dict[str, Namespaces] = {}
    for each in candidates(None):
        assert isinstance(each, Namespaces)
        if asyncio.run(_works(each)):
            found[f"{each.kind}-{each.launch.rights}"] = each
    return found


async def _works(provider: Namespaces) -> bool:
    with tempfile.TemporaryDirectory() as folder:
        try:
            opened = await SandboxLifecycle(Path(folder) / "t").open(provider, SandboxSpec(LIMITS))
        except RolloutFailure:
            return False
        try:
            return (await opened.exec(["true"])).ok
        except RolloutFailure:
            return False
        finally:
            await opened.close()


NAMES = [f"{each.kind}-{each.launch.rights}" for each in candidates(None) if isinstance(each, Namespaces)]
"""Of all kinds with all rights that may work here."""


def provider(name: str) -> Namespaces | None:
    """None where it does not work on this machine."""
    return _working().get(name)


def use(
    folder: Path,
    provider: Namespaces,
    work: Callable[[Sandbox], Awaitable[Value]],
    limits: SandboxLimits = LIMITS,
    network: bool = False,
) -> Value:
    """Do something in a sandbox of its own; nothing of it may be left."""

    async def inside() -> Value:
        lifecycle = SandboxLifecycle(folder / "tickets")
        opened = await lifecycle.open(provider, SandboxSpec(limits, network))
        try:
            return await work(opened)
        finally:
            await opened.close()
            assert lifecycle.tickets.read_all() == ([], [])
            assert list(lifecycle.tickets.folder.iterdir()) == []

    return asyncio.run(inside())


async def until(condition: Callable[[], bool]) -> None:
    """Wait for what happens by itself, but not for ever."""
    for _ in range(1500):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it did not happen")
