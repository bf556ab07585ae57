"""No sandbox without a ticket, and no ticket forgotten before its sandbox is gone."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from rollbook.envs.sandbox import SandboxLifecycle, SandboxLimits, SandboxRemains, SandboxSpec, Ticket
from rollbook.envs.sandbox.host_processes import boot_id, pid_space, since_boot, started
from rollbook.trace.ending import Reason, RolloutFailure
from tests.envs.sandbox.scripted import Scripted, Step

SPEC = SandboxSpec(SandboxLimits())


def dead() -> tuple[int, int]:
    """A process that has ended, and when it had started."""
    process = subprocess.Popen(["sleep", "9"])
    start = started(process.pid)
    process.kill()
    process.wait()
    assert start is not None
    return process.pid, start


def ticket(name: str = "old", **changes: object) -> Ticket:
    start = started(os.getpid())
    assert start is not None
    made = Ticket(
        id=name,
        provider="scripted",
        kind=Scripted().kind,
        owner=os.getpid(),
        owner_started=start,
        boot=boot_id(),
        space=pid_space(),
        expires=since_boot() + 60,
        label=f"ROLLBOOK_SANDBOX={name}",
    )
    return msgspec.structs.replace(made, **changes)


def test_the_ticket_is_there_before_anything_is_made_and_gone_last(tmp_path: Path) -> None:
    lifecycle = SandboxLifecycle(tmp_path / "t")
    seen: list[list[Ticket]] = []
    provider = Scripted(on_create=lambda _: seen.append(lifecycle.tickets.read_all()[0]))

    async def work() -> None:
        box = await lifecycle.open(provider, SPEC)
        (written,) = seen[0]
        assert written.id == box.info.id
        assert (written.owner, written.groups) == (os.getpid(), (f"group-{written.id}",))
        assert lifecycle.leftovers() == []
        await box.close()
        await box.close()
        with pytest.raises(RolloutFailure, match="after it was closed"):
            await box.exec(["true"])

    asyncio.run(work())
    assert provider.log == ["create", "ready", "remove"]
    assert (provider.live, lifecycle.tickets.read_all()) == (set(), ([], []))


@pytest.mark.parametrize("step", ["creates", "readies"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RolloutFailure(Reason.SANDBOX_LOST, "no room"), Reason.SANDBOX_LOST),
        (ValueError("a bug of the provider"), Reason.ENV_SETUP),
    ],
)
def test_a_failure_in_any_step_leaves_nothing(step: str, error: Exception, reason: Reason, tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t"), Scripted(**{step: [Step(error=error)]})
    with pytest.raises(RolloutFailure) as caught:
        asyncio.run(lifecycle.open(provider, SPEC))
    assert caught.value.reason is reason
    assert (provider.live, lifecycle.tickets.read_all()) == (set(), ([], []))


@pytest.mark.parametrize("step", ["creates", "readies"])
def test_a_cancellation_in_any_step_leaves_nothing(step: str, tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t"), Scripted(**{step: [Step(seconds=30)]})

    async def work() -> None:
        task = asyncio.create_task(lifecycle.open(provider, SPEC))
        await asyncio.sleep(0.02)
        assert len(provider.live) == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(work())
    assert (provider.live, lifecycle.tickets.read_all()) == (set(), ([], []))


def test_the_first_failure_is_told_and_a_failed_removal_stays_listed(tmp_path: Path) -> None:
    provider = Scripted(readies=[Step(error=RolloutFailure(Reason.SANDBOX_LOST, "first"))], removes=["busy", "busy"])
    lifecycle = SandboxLifecycle(tmp_path / "t")
    with pytest.raises(RolloutFailure, match="first"):
        asyncio.run(lifecycle.open(provider, SPEC))
    (left,) = lifecycle.leftovers()
    assert left.why == "busy"
    swept = asyncio.run(lifecycle.sweep(provider))
    assert (swept.removed, [each.why for each in swept.remaining]) == ((), ["busy"])
    assert asyncio.run(lifecycle.sweep(provider)).removed == (left.id,)
    assert (provider.live, lifecycle.leftovers()) == (set(), [])


def test_closing_says_what_could_not_be_removed(tmp_path: Path) -> None:
    provider, lifecycle = Scripted(removes=["device busy"]), SandboxLifecycle(tmp_path / "t")

    async def work() -> None:
        box = await lifecycle.open(provider, SPEC)
        with pytest.raises(SandboxRemains, match="device busy"):
            await box.close()

    asyncio.run(work())
    assert [each.why for each in lifecycle.leftovers()] == ["device busy"]


def test_a_failed_removal_brings_no_ticket_back_that_another_sweep_took(tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t"), Scripted(removes=["busy"])
    asyncio.run(lifecycle.open(provider, SPEC))
    (left,) = lifecycle.tickets.read_all()[0]
    lifecycle.tickets.remove(left.id)
    with pytest.raises(SandboxRemains):
        asyncio.run(lifecycle.remove(provider, left))
    assert lifecycle.tickets.read_all() == ([], [])


def test_what_a_sweep_takes_and_what_it_leaves(tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t"), Scripted()
    pid, start = dead()
    for each in (
        ticket("mine"),
        ticket("dead", owner=pid, owner_started=start),
        ticket("another-process-of-that-id", owner_started=1),
        ticket("expired", expires=since_boot() - 1),
        ticket("before-the-boot", boot="another"),
        ticket("another-space", space="pid:[7]", owner=pid, owner_started=start),
        ticket("another-space-expired", space="pid:[7]", expires=since_boot() - 1),
        ticket("another-provider", provider="elsewhere", owner=pid, owner_started=start),
    ):
        lifecycle.tickets.put(each)
        provider.live.add(each.id)
    (lifecycle.tickets.folder / "torn.json").write_text("{")
    swept = asyncio.run(lifecycle.sweep(provider))
    gone = {"dead", "another-process-of-that-id", "expired", "before-the-boot", "another-space-expired"}
    assert set(swept.removed) == gone
    assert {each.id for each in swept.remaining} == {"another-provider", "torn.json"}
    assert provider.live == {"mine", "another-space", "another-provider"}
    assert {each.id for each in lifecycle.tickets.read_all()[0]} == provider.live


def test_a_healthy_one_is_kept_alive_for_as_long_as_it_is_open(tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t", lifetime=0.15), Scripted()

    async def work() -> None:
        box = await lifecycle.open(provider, SPEC)
        for _ in range(8):
            await asyncio.sleep(0.05)
            assert lifecycle.leftovers() == []
        await box.close()
        await asyncio.sleep(0.1)
        assert lifecycle.tickets.read_all() == ([], [])

    asyncio.run(work())


def test_a_registry_that_cannot_be_written_makes_nothing(tmp_path: Path) -> None:
    lifecycle, provider = SandboxLifecycle(tmp_path / "t"), Scripted()
    lifecycle.tickets.folder.rmdir()
    with pytest.raises(RolloutFailure, match="no ticket"):
        asyncio.run(lifecycle.open(provider, SPEC))
    assert provider.log == []
