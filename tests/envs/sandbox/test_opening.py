"""Which kind is opened, and what is said where none can be."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from rollbook.envs.sandbox import Kind, SandboxLifecycle, SandboxLimits, open_sandbox, sandbox
from rollbook.envs.sandbox.opening import candidates, choose
from rollbook.errors import ConfigError, UsageError
from rollbook.trace.ending import Reason, RolloutFailure
from tests.envs.sandbox.scripted import Scripted, Step


def test_the_best_that_works_is_opened_and_it_isolates(tmp_path: Path) -> None:
    async def work() -> None:
        async with sandbox(folder=tmp_path / "t") as box:
            assert box.info.isolates
            assert box.info.kind in (Kind.BUBBLEWRAP, Kind.UNSHARE)
            assert not box.info.network
            assert (await box.exec(["true"])).ok
        assert list((tmp_path / "t").iterdir()) == []

    asyncio.run(work())


def test_unshare_can_be_asked_for(tmp_path: Path) -> None:
    async def work() -> Kind:
        async with sandbox("unshare", folder=tmp_path / "t") as box:
            return box.info.kind

    assert asyncio.run(work()) is Kind.UNSHARE


def test_a_failure_inside_closes_it(tmp_path: Path) -> None:
    async def work() -> None:
        async with sandbox(folder=tmp_path / "t"):
            raise ValueError("mine")

    with pytest.raises(ValueError, match="mine"):
        asyncio.run(work())
    assert list((tmp_path / "t").iterdir()) == []


@pytest.mark.parametrize("place", ["/", "/tmp", "/proc/self", "/dev", "/workspace/x"])
def test_folders_that_a_sandbox_has_for_itself_are_refused(place: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="place of its own"):
        asyncio.run(open_sandbox(readonly=[place], folder=tmp_path / "t"))


def test_an_unknown_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="bubblewrap, unshare, plain"):
        asyncio.run(open_sandbox("docker", folder=tmp_path / "t"))


@pytest.mark.parametrize("name", ["memory", "processes", "disk", "files", "cpu", "output", "flood", "open_files"])
def test_limits_are_positive(name: str) -> None:
    with pytest.raises(ConfigError, match=name):
        SandboxLimits(**{name: 0})


def test_where_no_kind_works_plain_is_not_taken_instead(tmp_path: Path) -> None:
    failing = [Scripted(readies=[Step(error=RolloutFailure(Reason.ENV_SETUP, why))]) for why in ("no bwrap", "no root")]
    with pytest.raises(UsageError, match=r"isolates nothing\. Tried: bubblewrap: no bwrap; bubblewrap: no root"):
        asyncio.run(choose(failing, SandboxLifecycle(tmp_path / "t")))
    assert [each.live for each in failing] == [set(), set()]
    assert Kind.PLAIN not in {each.kind for each in candidates(None)}


def test_the_first_that_works_is_taken(tmp_path: Path) -> None:
    bad, good = Scripted(creates=[Step(error=RolloutFailure(Reason.ENV_SETUP, "no"))]), Scripted()
    assert asyncio.run(choose([bad, good, Scripted()], SandboxLifecycle(tmp_path / "t"))) is good
    assert good.live == set()


def test_the_room_of_environments_does_not_load_it() -> None:
    code = "import sys, rollbook.envs; sys.exit(any(m.startswith('rollbook.envs.sandbox') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
