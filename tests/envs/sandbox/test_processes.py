"""Processes are found by their label, and nobody else's are harmed."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from rollbook.envs.sandbox import Kind, SandboxRemains, Ticket
from rollbook.envs.sandbox.groups import find_parents
from rollbook.envs.sandbox.processes import boot_id, end_labelled, is_running, labelled, pid_space, since_boot, started
from rollbook.envs.sandbox.removal import remove_local

TICKET = Ticket("x1", "local", Kind.PLAIN, 1, 1, "boot", "space", 0.0, "ROLLBOOK_SANDBOX=x1")


@contextmanager
def running(*values: str, name: str = "ROLLBOOK_SANDBOX") -> Iterator[list[subprocess.Popen[bytes]]]:
    """One process for each label; all that are left are ended."""
    made = [subprocess.Popen(["sleep", "30"], env={"PATH": "/usr/bin:/bin", name: each}) for each in values]
    try:
        yield made
    finally:
        for each in made:
            each.kill()
            each.wait()


def test_a_label_is_found_whole_or_before_a_stroke() -> None:
    with running("x1", "x1/7", "x12", "ax1", "x1.7") as made:
        assert sorted(labelled("ROLLBOOK_SANDBOX=x1")) == sorted([made[0].pid, made[1].pid])
        assert labelled("ROLLBOOK_SANDBOX=x1/7") == [made[1].pid]
    with running("x1", name="OTHER"):
        assert labelled("ROLLBOOK_SANDBOX=x1") == []


def test_those_that_bear_it_are_ended_and_no_others() -> None:
    with running("x1", "x1/7", "x12") as made:
        assert end_labelled("ROLLBOOK_SANDBOX=x1", 5.0) == []
        assert [each.poll() for each in made] == [-9, -9, None]
    assert end_labelled("ROLLBOOK_SANDBOX=x1", 5.0) == []


def test_who_cannot_be_waited_for_any_longer_is_named() -> None:
    with running("x1") as made:
        assert end_labelled("ROLLBOOK_SANDBOX=x1", 0.0) == [made[0].pid]


def test_a_process_is_known_by_its_start() -> None:
    own = started(os.getpid())
    assert own is not None
    assert is_running(os.getpid(), own)
    assert not is_running(os.getpid(), own + 1)
    with running("x1") as made:
        pid, start = made[0].pid, started(made[0].pid)
        assert start is not None
        assert start >= own
    assert started(pid) is None
    assert not is_running(pid, start)


def test_the_boot_and_the_clock() -> None:
    assert boot_id() == boot_id() != ""
    assert pid_space().startswith("pid:[")
    assert 0 < since_boot() <= since_boot()


def test_a_ticket_is_enough_to_remove_all_that_it_names(tmp_path: Path) -> None:
    """As the sweep of another process does it, with no launcher left that would end with its owner."""
    folder = tmp_path / "x1.work"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "out").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    (folder / "deep").chmod(0)
    groups = tuple(str(parent / f"rollbook-x1-{os.getpid()}") for parent in find_parents())
    for each in groups:
        os.mkdir(each)
    ticket = msgspec.structs.replace(TICKET, workspace=str(folder), groups=groups)
    with running("x1/3", "elsewhere") as made:
        for each in groups:
            Path(each, "cgroup.procs").write_text(str(made[1].pid))
        remove_local(ticket)
        assert made[0].poll() == -9
        assert made[1].wait(5 if groups else None) == -9 if groups else made[1].poll() is None
    assert not folder.exists()
    assert (tmp_path / "mine").is_dir()
    assert not any(os.path.exists(each) for each in groups)
    remove_local(ticket)


def test_what_cannot_be_removed_is_named(tmp_path: Path) -> None:
    (tmp_path / "group" / "child").mkdir(parents=True)
    ticket = msgspec.structs.replace(TICKET, groups=(str(tmp_path / "group"),))
    with pytest.raises(SandboxRemains, match="control groups remain"):
        remove_local(ticket, patience=0.05)
