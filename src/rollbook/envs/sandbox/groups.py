"""Control groups of one sandbox: memory and processes bounded for all that runs in it, and counted.

Version 1 has a tree for each controller, version 2 one for all. A group is made below the one that this process lives
in, or below the root of the tree where that one is not shown; where neither can be written there are none, and limits
of single processes stand in. Groups are planned before they are made, so that whoever finds the plan can remove them.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.envs.sandbox.result import SandboxLimits

__all__ = ["Counts", "counts", "end_members", "find_parents", "is_group_of", "make_groups", "members", "remove_groups"]

CONTROLLERS = ("memory", "pids")
ROOT = Path("/")
TREES = ("cgroup", "cgroup2")
"""Types of their file systems."""


@dataclass(frozen=True, slots=True)
class Counts:
    """Events since the group was made."""

    killed: int = 0
    """Processes that were killed for memory."""
    refused: int = 0
    """Forks that the limit of processes refused."""


def find_parents(root: Path = ROOT) -> tuple[Path, ...]:
    """Folders below which groups for memory and processes can be made: one (version 2), two (version 1) or none."""
    try:
        mounts = (root / "proc/self/mountinfo").read_text().splitlines()
        own = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return ()
    paths = {name: path for _, names, path in (line.split(":", 2) for line in own) for name in names.split(",")}
    ones: dict[str, Path] = {}
    for line in mounts:
        left, _, right = line.partition(" - ")
        kind, _, options = right.split(" ", 2)
        place = root / left.split()[4].lstrip("/")
        for name in CONTROLLERS:
            if kind == "cgroup" and name in options.split(" ")[-1].split(","):
                ones[name] = _writable(place, paths.get(name, "/"))
        if kind == "cgroup2":
            two = _writable(place, paths.get("", "/"))
            if _delegates(two):
                return (two,)
    found = tuple(ones[name] for name in CONTROLLERS if name in ones)
    return found if len(found) == len(CONTROLLERS) and all(os.access(each, os.W_OK) for each in found) else ()


def is_group_of(name: str, group: str, root: Path = ROOT) -> bool:
    """True for a path that can only be a control group of the sandbox `name`."""
    path = Path(group)
    if path.name != f"rollbook-{name}" or ".." in path.parts:
        return False
    rows = (line.partition(" - ") for line in (root / "proc/self/mountinfo").read_text().splitlines())
    trees = (root / left.split()[4].lstrip("/") for left, _, right in rows if right.split(" ")[0] in TREES)
    return any(path.is_relative_to(each) for each in trees)


def _writable(mount: Path, own: str) -> Path:
    below = mount / own.lstrip("/")
    return below if os.access(below, os.W_OK) else mount


def _delegates(group: Path) -> bool:
    """True where children of the group can be bounded."""
    try:
        granted = (group / "cgroup.subtree_control").read_text().split()
    except OSError:
        return False
    return os.access(group, os.W_OK) and set(CONTROLLERS) <= set(granted)


def make_groups(groups: Sequence[str], limits: SandboxLimits) -> None:
    """Make the planned groups and set their bounds. Raises `OSError`.

    Files in the workspace count as memory, so both bounds together are the group's.
    """
    memory = str(limits.memory + limits.disk)
    bounds = {
        "memory.limit_in_bytes": memory,
        "memory.memsw.limit_in_bytes": memory,
        "memory.max": memory,
        "memory.swap.max": "0",
        "pids.max": str(limits.processes + LAUNCHERS),
    }
    for each in map(Path, groups):
        each.mkdir()
        for name, value in bounds.items():
            if (each / name).exists():
                (each / name).write_text(value)


LAUNCHERS = 3
"""Processes of ours that a command brings with it: the launcher, the first process inside, and one that becomes what
was asked."""


def counts(groups: Sequence[str]) -> Counts:
    """What the groups have counted; zeros for none."""
    killed = refused = 0
    for each in map(Path, groups):
        killed += _number(each / "memory.oom_control", "oom_kill") + _number(each / "memory.events", "oom_kill")
        refused += _number(each / "pids.events", "max")
    return Counts(killed, refused)


def _number(file: Path, name: str) -> int:
    try:
        rows = [line.split() for line in file.read_text().splitlines()]
    except OSError:
        return 0
    return next((int(row[1]) for row in rows if row[0] == name), 0)


def members(groups: Sequence[str]) -> list[int]:
    """Processes in the groups. One of another namespace has no id here: it is listed as 0, which to kill is to kill
    oneself."""
    found: set[int] = set()
    for each in map(Path, groups):
        try:
            found.update(map(int, (each / "cgroup.procs").read_text().split()))
        except OSError:  # never made, or removed by somebody else just now
            continue
    return sorted(found - {0})


def end_members(groups: Sequence[str]) -> None:
    """SIGKILL for all that is in the groups, by descriptor, so that an id that came again is nobody's harm."""
    for pid in members(groups):
        try:
            fd = os.pidfd_open(pid)
        except OSError:
            continue
        try:
            if pid in members(groups):
                signal.pidfd_send_signal(fd, signal.SIGKILL)
        except OSError:  # it is gone, or not ours to end: then its group stays, and is named
            continue
        finally:
            os.close(fd)


def remove_groups(groups: Sequence[str], seconds: float) -> list[str]:
    """End all that is in the groups and remove them; those that are still there after `seconds`. One that was never
    made is fine."""
    until = time.monotonic() + seconds
    left = list(groups)
    while True:
        end_members(left)
        left = [each for each in left if not _removed(Path(each))]
        if not left or time.monotonic() >= until:
            return left
        time.sleep(0.005)


def _removed(group: Path) -> bool:
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
