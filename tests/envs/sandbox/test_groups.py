"""Where control groups can be made, in trees that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.envs.sandbox import SandboxLimits
from rollbook.envs.sandbox.groups import Counts, counts, find_parents, is_group_of, make_groups, members, remove_groups

ONE = """\
30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs rw
31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids
33 30 0:29 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw
"""
TWO = "33 30 0:29 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw,nsdelegate\n"


def machine(root: Path, mounts: str, own: str, *folders: str) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/self/mountinfo").write_text(mounts)
    (root / "proc/self/cgroup").write_text(own)
    for each in folders:
        (root / "sys/fs/cgroup" / each).mkdir(parents=True)
    return root


def test_version_1_has_a_tree_for_each_and_the_own_group_where_it_is_shown(tmp_path: Path) -> None:
    root = machine(tmp_path, ONE, "9:pids:/\n4:memory:/mine/here\n0::/\n", "memory/mine/here", "pids")
    assert find_parents(root) == (root / "sys/fs/cgroup/memory/mine/here", root / "sys/fs/cgroup/pids")


def test_version_1_takes_the_root_where_the_own_group_is_not_shown(tmp_path: Path) -> None:
    root = machine(tmp_path, ONE, "9:pids:/x\n4:memory:/y\n", "memory", "pids")
    assert find_parents(root) == (root / "sys/fs/cgroup/memory", root / "sys/fs/cgroup/pids")


def test_version_2_needs_both_controllers_granted_to_children(tmp_path: Path) -> None:
    root = machine(tmp_path, TWO, "0::/user/mine\n", "user/mine")
    granted = root / "sys/fs/cgroup/user/mine/cgroup.subtree_control"
    assert find_parents(root) == ()
    granted.write_text("cpu memory\n")
    assert find_parents(root) == ()
    granted.write_text("memory pids\n")
    assert find_parents(root) == (root / "sys/fs/cgroup/user/mine",)


@pytest.mark.parametrize("mounts", ["", ONE.replace("rw,pids", "rw,cpu")])
def test_without_both_there_are_none(tmp_path: Path, mounts: str) -> None:
    assert find_parents(machine(tmp_path, mounts, "4:memory:/\n3:cpu:/\n", "memory", "pids")) == ()


def test_no_proc_no_groups(tmp_path: Path) -> None:
    assert find_parents(tmp_path) == ()


def test_events_are_read_from_both_versions(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    for each in (one, two):
        each.mkdir()
    (one / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n")
    (two / "memory.events").write_text("low 0\noom 9\noom_kill 3\n")
    (two / "pids.events").write_text("max 7\n")
    assert counts([str(one), str(two), str(tmp_path / "none")]) == Counts(5, 7)
    assert counts([]) == Counts()


def test_groups_that_were_never_made_are_gone(tmp_path: Path) -> None:
    assert remove_groups([str(tmp_path / "none")], 0.0) == []
    assert members([str(tmp_path / "none")]) == []


def test_a_member_of_another_namespace_has_no_id_to_kill(tmp_path: Path) -> None:
    (tmp_path / "cgroup.procs").write_text("0\n71\n0\n9\n")
    assert members([str(tmp_path)]) == [9, 71]


def test_a_group_is_known_by_its_name_below_a_tree_of_groups(tmp_path: Path) -> None:
    root, tree = machine(tmp_path, ONE, ""), tmp_path / "sys/fs/cgroup/pids"
    assert is_group_of("a", f"{tree}/mine/rollbook-a", root)
    for group in (f"{tree}/rollbook-b", str(tree), f"{tmp_path}/rollbook-a", f"{tree}/../../rollbook-a", "rollbook-a"):
        assert not is_group_of("a", group, root), group


def test_a_group_that_stays_is_named(tmp_path: Path) -> None:
    (tmp_path / "busy" / "child").mkdir(parents=True)
    assert remove_groups([str(tmp_path / "busy")], 0.01) == [str(tmp_path / "busy")]


def test_bounds_are_written_where_there_are_files_for_them(tmp_path: Path) -> None:
    make_groups([str(tmp_path / "new")], SandboxLimits(memory=1000, disk=24, processes=5))
    assert list((tmp_path / "new").iterdir()) == []
