"""Processes are found by their label, and nobody else's are harmed."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from rollbook.envs.sandbox import Kind, SandboxRemains, Ticket
from rollbook.envs.sandbox.groups import find_parents
from rollbook.envs.sandbox.host_processes import (
    boot_id,
    end_labelled,
    is_running,
    labelled,
    pid_space,
    since_boot,
    started,
)
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
    with running("x1") as made:
        made[0].kill()
        os.waitid(os.P_PID, made[0].pid, os.WEXITED | os.WNOWAIT)
        assert started(made[0].pid) is None, "it has ended, though nobody has waited for it"
    assert not is_running(pid, start)


def test_the_boot_and_the_clock() -> None:
    assert boot_id() == boot_id() != ""
    assert pid_space().startswith("pid:[")
    assert 0 < since_boot() <= since_boot()
    assert abs(since_boot() - time.monotonic()) < 1, "a machine that sleeps lets nothing expire"


def test_a_ticket_is_enough_to_remove_all_that_it_names(tmp_path: Path) -> None:
    """As the sweep of another process does it, with no launcher left that would end with its owner."""
    folder = tmp_path / "x1.work"
    (folder / "deep").mkdir(parents=True)
    (folder / "deep" / "out").symlink_to(tmp_path / "mine")
    (tmp_path / "mine").mkdir()
    (folder / "deep").chmod(0)
    name = f"x1-{os.getpid()}"
    groups = tuple(str(parent / f"rollbook-{name}") for parent in find_parents())
    for each in groups:
        os.mkdir(each)
    ticket = msgspec.structs.replace(TICKET, id=name, workspace=str(folder), groups=groups)
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
    parents = find_parents()
    if not parents:
        pytest.skip("no control group can be made here")
    name = f"x2-{os.getpid()}"
    group = parents[0] / f"rollbook-{name}"
    (group / "child").mkdir(parents=True)
    try:
        with pytest.raises(SandboxRemains, match="control groups remain"):
            remove_local(msgspec.structs.replace(TICKET, id=name, groups=(str(group),)), patience=0.05)
    finally:
        (group / "child").rmdir()
        group.rmdir()


def test_a_group_that_is_none_of_its_own_is_left_alone(tmp_path: Path) -> None:
    """Whoever may write a ticket must not choose who is killed."""
    forged = tmp_path / "rollbook-x1"
    forged.mkdir()
    with running("elsewhere") as made:
        (forged / "cgroup.procs").write_text(f"{made[0].pid}\n")
        others = [str(parent) for parent in find_parents()] + [f"{forged}/../{forged.name}", "/"]
        for group in (str(forged), *others):
            with pytest.raises(SandboxRemains, match="no control groups of it"):
                remove_local(msgspec.structs.replace(TICKET, groups=(group,)), patience=0.05)
        assert made[0].poll() is None
    assert forged.exists()


def test_a_workspace_that_became_a_link_is_removed_as_a_link(tmp_path: Path) -> None:
    mine = tmp_path / "mine" / "shut"
    mine.mkdir(parents=True)
    mine.chmod(0o500)
    (tmp_path / "x1.work").symlink_to(tmp_path / "mine")
    remove_local(msgspec.structs.replace(TICKET, workspace=str(tmp_path / "x1.work")))
    assert not os.path.lexists(tmp_path / "x1.work")
    assert mine.stat().st_mode & 0o777 == 0o500


def test_a_workspace_deeper_than_a_path_can_say_is_removed(tmp_path: Path) -> None:
    folder = tmp_path / "x1.work"
    folder.mkdir()
    script = "import os\nfor _ in range(2000):\n os.mkdir('deep'); os.chdir('deep')"
    subprocess.run([sys.executable, "-c", script], cwd=folder, check=True, timeout=30)
    remove_local(msgspec.structs.replace(TICKET, workspace=str(folder)))
    assert not folder.exists()
