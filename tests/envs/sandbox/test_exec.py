"""Commands in a sandbox that is well, in one that is not, and in one that is cancelled."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.envs import Environment, ToolRefused, ToolSet, tool
from rollbook.envs.sandbox import (
    Cause,
    CommandRefused,
    ExecResult,
    FileRefused,
    Kind,
    Sandbox,
    SandboxLifecycle,
    SandboxLimits,
    SandboxSpec,
    sandbox,
)
from rollbook.envs.sandbox.host_processes import PROC, labelled
from rollbook.envs.sandbox.launch import Launch, Rights
from rollbook.envs.sandbox.namespaces import Namespaces, this_host
from rollbook.trace.ending import Reason, RolloutFailure
from rollbook.trace.message import Fault, ToolCall
from tests.envs.sandbox.made import LIMITS, SHELL, TAG, until, use

Inside = Callable[..., Any]


def test_input_output_status_and_signal(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        echoed = await box.exec(["cat"], stdin=b"\xff\0in")
        assert (echoed.ok, echoed.stdout, echoed.stderr, echoed.cut) == (True, b"\xff\0in", b"", False)
        failed = await box.exec([*SHELL, "echo oops >&2; exit 3"])
        assert (failed.cause, failed.status, failed.stderr) == (Cause.EXITED, 3, b"oops\n")
        crashed = await box.exec([*SHELL, "kill -SEGV $$"])
        assert (crashed.cause, crashed.status, crashed.signal) == (Cause.SIGNAL, None, 11)
        missing = await box.exec(["no-such-program"])
        assert missing.status == 127
        assert (await box.exec([*SHELL, 'echo "$0" "$@"', "a b", "*", "$HOME"])).stdout == b"a b * $HOME\n"

    inside(work)


def test_its_environment_is_its_own(inside: Inside) -> None:
    async def work(box: Sandbox) -> bytes:
        return (await box.exec(["env"])).stdout

    names = sorted(line.partition(b"=")[0] for line in inside(work).splitlines())
    assert names == [b"HOME", b"LANG", b"PATH", b"TMPDIR"]


def test_commands_run_side_by_side_and_do_not_see_each_other(inside: Inside) -> None:
    async def work(box: Sandbox) -> list[ExecResult]:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(box.exec([*SHELL, f"sleep 0.2; echo {i}; kill -9 -1"])) for i in range(4)]
        return [task.result() for task in tasks]

    assert [done.stdout for done in inside(work)] == [b"0\n", b"1\n", b"2\n", b"3\n"]


def test_a_holder_that_dies_is_a_lost_host(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        for pid in labelled(f"ROLLBOOK_SANDBOX={box.info.id}"):
            os.kill(pid, signal.SIGKILL)
        await until(lambda: not labelled(f"ROLLBOOK_SANDBOX={box.info.id}"))
        with pytest.raises(RolloutFailure, match=r"holder|launcher failed") as caught:
            await box.exec(["true"])
        assert caught.value.reason is Reason.SANDBOX_LOST

    inside(work)


def test_a_launcher_that_somebody_kills_is_a_lost_host(made: Namespaces, tmp_path: Path) -> None:
    async def work(box: Sandbox) -> None:
        async def kill() -> None:
            label = f"ROLLBOOK_SANDBOX={box.info.id}/1"
            await until(lambda: len(labelled(label)) > 1)
            await asyncio.sleep(0.1)
            os.kill(min(labelled(label)), signal.SIGKILL)

        async with asyncio.TaskGroup() as group:
            task = group.create_task(kill())
            if made.kind is Kind.BUBBLEWRAP:
                with pytest.raises(RolloutFailure, match="launcher was killed"):
                    await box.exec(["sleep", "30"])
            else:  # it relays its child's death, so its own cannot be told from it
                assert (await box.exec(["sleep", "30"])).cause is Cause.SIGNAL
            await task

    use(tmp_path, made, work)


def test_cancelling_a_command_ends_all_of_it(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        task = asyncio.create_task(box.exec([*SHELL, f"sleep 61.{TAG} & sleep 61.{TAG}"], seconds=60.0))
        await asyncio.sleep(0.3)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        found = [each.read_bytes() for each in PROC.glob("[0-9]*/cmdline") if each.exists()]
        assert not any(f"61.{TAG}".encode() in line for line in found)
        assert (await box.exec(["true"])).ok

    inside(work)


def test_without_groups_single_processes_are_bounded(made: Namespaces, tmp_path: Path) -> None:
    bare = Namespaces(made.kind, made.launch.rights, this_host(), parents=())

    async def work(box: Sandbox) -> None:
        assert not box.info.groups
        code = "import sys\ntry:\n x = bytearray(300 << 20)\nexcept MemoryError:\n sys.exit(5)"
        assert (await box.exec(["python3", "-c", code])).status == 5
        script = "i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; echo all"
        assert b"all" not in (await box.exec([*SHELL, script])).stdout
        assert (await box.exec(["true"])).ok

    use(tmp_path, bare, work, msgspec.structs.replace(LIMITS, memory=128 << 20))


class Wrong(Launch):
    """Starts something else as the holder."""

    def holder(self, limits: SandboxLimits, readonly: Sequence[str]) -> list[str]:
        return [*readonly]


@pytest.mark.parametrize(
    ("argv", "reason", "says"),
    [
        (("/no/such/program",), Reason.ENV_SETUP, "there is no /no/such/program"),
        (("/bin/sh", "-c", "echo no namespaces here >&2; exit 1"), Reason.ENV_SETUP, "no namespaces here"),
        (("/bin/sh", "x" * 200_000), Reason.SANDBOX_LOST, "could not be started"),
        (("/etc/passwd",), Reason.SANDBOX_LOST, "could not be started"),
    ],
)
def test_a_sandbox_that_cannot_be_made_leaves_nothing(
    argv: tuple[str, ...], reason: Reason, says: str, tmp_path: Path
) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t"), Namespaces(Kind.UNSHARE, Rights.USER, this_host())
    provider.launch = Wrong(Kind.UNSHARE, Rights.USER, this_host())
    with pytest.raises(RolloutFailure, match=says) as caught:
        asyncio.run(lifecycle.open(provider, SandboxSpec(LIMITS, readonly=argv)))
    assert caught.value.reason is reason
    assert lifecycle.tickets.read_all() == ([], [])


UNPASSABLE = [[], [""], ["a\0b"], ["echo", "\ud800"], ["echo", "x" * (128 * 1024)], ["echo", *["y" * 1000] * 2000]]


def test_a_command_that_cannot_be_passed_is_no_lost_host(inside: Inside) -> None:
    async def work(box: Sandbox) -> None:
        for argv in UNPASSABLE:
            with pytest.raises(CommandRefused):
                await box.exec(argv)
        for path in ("\ud800", "x" * 300, "x" * 200_000):
            with pytest.raises(ToolRefused):
                await box.write(path, b"")
            with pytest.raises(FileRefused):
                await box.read(path, 9)
        longest = await box.exec(["printf", "%s", "z" * (128 * 1024 - 1)])
        assert (longest.ok, len(longest.stdout) + longest.stdout_lost) == (True, 128 * 1024 - 1)
        many = await box.exec(["true", *["y" * 1000] * 1000])
        assert many.ok

    inside(work)


def test_a_refusal_is_the_policys_fault_in_a_tool(tmp_path: Path) -> None:
    class Shell(Environment):
        @tool
        async def shell(self, command: str) -> bytes:
            """Runs a command."""
            async with sandbox(folder=tmp_path / "t") as box:
                return (await box.exec(["sh", "-c", command])).stdout

    call = ToolCall(id="c", name="shell", arguments={"command": "a\0b"})
    outcome = asyncio.run(ToolSet.of(Shell()).invoke(call))
    assert outcome.message.fault is Fault.POLICY


def test_a_folder_that_is_asked_for_is_seen_and_cannot_be_written(made: Namespaces, tmp_path: Path) -> None:
    folder = "/opt"

    async def work() -> None:
        lifecycle = SandboxLifecycle(tmp_path / "t")
        box = await lifecycle.open(made, SandboxSpec(LIMITS, readonly=(folder,)))
        try:
            assert (await box.exec(["ls", folder])).ok
            assert not (await box.exec([*SHELL, f": > {folder}/x"])).ok
        finally:
            await box.close()

    asyncio.run(work())


def test_starting_takes_milliseconds(inside: Inside) -> None:
    async def work(box: Sandbox) -> float:
        seconds: list[float] = []
        for _ in range(7):
            began = time.perf_counter()
            assert (await box.exec(["true"])).ok
            seconds.append(time.perf_counter() - began)
        return sorted(seconds)[3]

    assert inside(work) < 1.0
