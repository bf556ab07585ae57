"""Sandboxes that nobody knows of, that outlive their owner, or whose output is no text."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.envs import Environment, tool
from rollbook.envs.sandbox import Sandbox, SandboxLifecycle, SandboxLimits, SandboxSpec, leftovers, sandbox, sweep
from rollbook.envs.sandbox.host_processes import labelled, since_boot
from rollbook.envs.sandbox.lifecycle import LIFETIME
from rollbook.export import export
from rollbook.rollout import group
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Message, Reason, RolloutFailure, Task, Trace
from rollbook.trace.message import message_key
from tests.cases.case import Script, bits, bytes_renderer, calls, report, says
from tests.envs.sandbox.made import until
from tests.envs.sandbox.scripted import Scripted, Step

SPEC = SandboxSpec(SandboxLimits())

# G12


class Boxed(Environment):
    """Opens a sandbox in `setup` and closes it in `cleanup`."""

    def __init__(self, lifecycle: SandboxLifecycle, provider: Scripted) -> None:
        self.lifecycle, self.provider = lifecycle, provider
        self.box: Sandbox | None = None

    async def setup(self, task: Task) -> list[Message]:
        self.box = await self.lifecycle.open(self.provider, SPEC)
        return [*task.messages()]

    @tool
    async def run(self, seconds: float) -> str:
        """Runs something."""
        assert self.box is not None
        # as many sandboxes as rollouts in flight, and each has its ticket
        assert {each.id for each in self.lifecycle.tickets.read_all()[0]} == self.provider.live == {self.box.info.id}
        await self.box.exec(["sleep", str(seconds)])
        return "ran"

    async def score(self, trace: Trace) -> float:
        return 1.0

    async def cleanup(self) -> None:
        if self.box is not None:
            await self.box.close()


@report("G12")
def test_every_sandbox_that_was_created_is_deleted(given: dict[str, Any], tmp_path: Path) -> None:
    assert given["steps"] == ["create ok -> id s1", "wait_ready raises", "retry create ok -> id s2", "cancel"]
    made: list[str] = []
    provider = Scripted(
        readies=[Step(error=RolloutFailure(Reason.SANDBOX_LOST, "never ready"))],
        on_create=lambda ticket: made.append(ticket.id),
    )
    lifecycle = SandboxLifecycle(tmp_path / "t")
    script = Script([calls("run", '{"seconds": 30}'), says("done")])

    async def work() -> None:
        task = asyncio.create_task(
            group(lambda: Boxed(lifecycle, provider), Task(id="t", prompt="go"), script.loaded(), 1)
        )
        await until(lambda: len(script.prompts) > 0)
        await asyncio.sleep(0.05)
        assert provider.live == {made[1]}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert len(set(made)) == 2
    assert provider.log == ["create", "ready", "remove", "create", "ready", "remove"]
    assert (provider.live, lifecycle.tickets.read_all()) == (set(), ([], []))


# G13

LAUNCHER = """
import asyncio, sys
from pathlib import Path
from rollbook.envs.sandbox import open_sandbox

async def main():
    boxes = [await open_sandbox(folder=Path(sys.argv[1])) for _ in range(int(sys.argv[2]))]
    print(len(boxes), flush=True)
    await asyncio.sleep(100)

asyncio.run(main())
"""


@report("G13")
def test_what_a_killed_launcher_left_is_swept_and_healthy_ones_live(given: dict[str, Any], tmp_path: Path) -> None:
    folder, count = tmp_path / "t", given["sandboxes"]
    with subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, str(folder), str(count)], stdout=subprocess.PIPE
    ) as launcher:
        assert launcher.stdout is not None
        assert int(launcher.stdout.readline()) == count
        tickets, _ = SandboxLifecycle(folder).tickets.read_all()
        assert {each.owner for each in tickets} == {launcher.pid}
        assert all(0 < each.expires - since_boot() <= LIFETIME < 3600 for each in tickets)
        assert asyncio.run(sweep(folder)).removed == ()  # its owner lives
        launcher.kill()
    assert len(leftovers(folder)) == count

    async def next_start() -> None:
        async with sandbox(folder=folder) as mine:  # the first one of a process sweeps
            assert [each.id for each in SandboxLifecycle(folder).tickets.read_all()[0]] == [mine.info.id]
            assert (await sweep(folder)).removed == ()
            assert (await mine.exec(["true"])).ok

    asyncio.run(next_start())
    assert [pid for each in tickets for pid in labelled(each.label)] == []
    assert not any(Path(group).exists() for each in tickets for group in each.groups)
    assert list(folder.iterdir()) == []


def test_a_long_healthy_one_moves_its_expiry_on(tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t", lifetime=0.2), Scripted()

    async def work() -> None:
        box = await lifecycle.open(provider, SPEC)
        (first,), _ = lifecycle.tickets.read_all()
        await asyncio.sleep(0.5)
        (later,), _ = lifecycle.tickets.read_all()
        assert later.expires > since_boot() > first.expires
        assert (await lifecycle.sweep(provider)).removed == ()
        await box.close()

    asyncio.run(work())


# G14


@report("G14")
@pytest.mark.parametrize("place", [0, 1])
def test_a_cancelled_start_or_command_leaves_none_and_a_failed_removal_is_seen(
    given: dict[str, Any], place: int, tmp_path: Path
) -> None:
    during = given["cancel_at"][place]
    busy = given["rm_result"]
    provider = Scripted(creates=[Step(30.0)] if "run" in during else [], removes=[busy, busy])
    lifecycle = SandboxLifecycle(tmp_path / "t")

    async def work() -> None:
        async def attempt() -> None:
            box = await lifecycle.open(provider, SPEC)
            try:
                await box.exec(["sleep", "1000"])
            finally:
                await box.close()

        task = asyncio.create_task(attempt())
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or busy in str(task.exception())
        (left,) = lifecycle.leftovers()
        assert left.why == busy
        assert provider.live == {left.id}
        assert [each.why for each in (await lifecycle.sweep(provider)).remaining] == [busy]
        assert (await lifecycle.sweep(provider)).removed == (left.id,)

    asyncio.run(work())
    assert (provider.live, lifecycle.leftovers(), lifecycle.tickets.read_all()) == (set(), [], ([], []))


def test_a_command_that_is_cancelled_stops_inside(tmp_path: Path) -> None:
    async def work() -> None:
        async with sandbox(folder=tmp_path / "t") as box:
            task = asyncio.create_task(box.exec(["sleep", "1000"], seconds=2000))
            await asyncio.sleep(0.3)
            task.cancel()
            await asyncio.wait([task])
            assert task.cancelled()
            assert labelled(f"ROLLBOOK_SANDBOX={box.info.id}/1") == []
            seen = await box.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
            assert b"sleep 1000" not in seen.stdout

    asyncio.run(work())


# I06


class Bytes(Environment):
    """Prints bytes in a sandbox."""

    def __init__(self, folder: Path, data: bytes) -> None:
        self.folder, self.data = folder, data

    @tool
    async def run(self) -> bytes:
        """Prints."""
        async with sandbox(folder=self.folder) as box:
            return (await box.exec(["cat"], stdin=self.data)).stdout

    async def score(self, trace: Trace) -> float:
        return 1.0


@report("I06")
def test_output_that_is_no_text_is_kept_as_bytes(given: dict[str, Any], tmp_path: Path) -> None:
    data = bytes.fromhex(given["tool_stdout_hex"].replace(" ", ""))
    script = Script([calls("run", "{}"), says("done")])
    with RunWriter.create(tmp_path / "run") as writer:
        (trace,) = asyncio.run(
            group(lambda: Bytes(tmp_path / "t", data), Task(id="t", prompt="go"), script.loaded(), 1, sink=writer)
        )
    shown = trace.graph.messages[2]
    assert (shown.raw, shown.content) == (data, "km\\xb2\n")
    assert shown.content.encode() == b"km\\xb2\n"  # what the model sees has a form in UTF-8
    assert "km\\xb2\n" in bytes_renderer().decode(script.prompts[1])
    again = RunReader(tmp_path / "run", strict=True).get(trace.id)
    assert bits(again) == bits(trace)
    assert again.graph.messages[2].raw == data
    export(RunReader(tmp_path / "run"), "jsonl", tmp_path / "out.jsonl")
    text = msgspec.structs.replace(shown, raw=None)
    assert message_key(shown) != message_key(text)
    other = msgspec.structs.replace(shown, raw=b"km\xb3\n")
    assert message_key(shown) != message_key(other)
