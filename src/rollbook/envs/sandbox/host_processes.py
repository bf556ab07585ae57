"""Processes of this machine, found by what they cannot change: the environment that they were started with.

A process that starts something in a sandbox bears a label in its environment. What runs inside has a cleared
environment, and lives in a namespace of process ids that ends with its first process, which bears the label.
"""

from __future__ import annotations

import os
import select
import signal
import time
from pathlib import Path

__all__ = ["boot_id", "end_labelled", "is_running", "labelled", "pid_space", "since_boot", "started"]

PROC = Path("/proc")
STEP = 0.2
"""Seconds to wait for killed processes before looking again."""


def boot_id() -> str:
    """Names the running boot."""
    return (PROC / "sys/kernel/random/boot_id").read_text().strip()


def pid_space() -> str:
    """Names the namespace of process ids."""
    return os.readlink(PROC / "self/ns/pid")


def since_boot() -> float:
    """Seconds that this machine has been awake since boot: nobody sets this clock, and owners that sleep with the
    machine don't expire."""
    return time.clock_gettime(time.CLOCK_MONOTONIC)


def started(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None: there is none of that id, or it has ended and nobody
    has waited for it yet."""
    try:
        stat = (PROC / str(pid) / "stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    state, *rest = stat.rpartition(b")")[2].split()
    return None if state in (b"Z", b"X") else int(rest[18])


def is_running(pid: int, start: int) -> bool:
    """True where the process that had this id then is still there."""
    return started(pid) == start


def labelled(label: str) -> list[int]:
    """Processes whose first environment holds ``label`` (``NAME=value``), or that value with ``/`` and more behind."""
    found: list[int] = []
    for entry in os.scandir(PROC):
        if not entry.name.isdigit():
            continue
        if _bears(int(entry.name), label.encode()):
            found.append(int(entry.name))
    return found


def _bears(pid: int, label: bytes) -> bool:
    try:
        environment = (PROC / str(pid) / "environ").read_bytes()
    except OSError:  # it is gone, or somebody else's
        return False
    return any(each == label or each.startswith(label + b"/") for each in environment.split(b"\0"))


def end_labelled(label: str, seconds: float) -> list[int]:
    """SIGKILL for all that bear the label, and wait until they are gone; who is still there after `seconds`.

    A process is gone when its descriptor says so: the first of a namespace ends after all the others in it. Children
    of ours are left as zombies for whoever started them.
    """
    until = time.monotonic() + seconds
    left = labelled(label)
    while left and time.monotonic() < until:
        descriptors = [fd for pid in left if (fd := _kill(pid, label)) is not None]
        try:
            _wait(descriptors, min(STEP, max(0.0, until - time.monotonic())))
        finally:
            for fd in descriptors:
                os.close(fd)
        left = labelled(label)
    return left


def _kill(pid: int, label: str) -> int | None:
    """Kill by descriptor, so that an id that came again is nobody's harm."""
    try:
        fd = os.pidfd_open(pid)
    except OSError:
        return None
    try:
        if _bears(pid, label.encode()):
            signal.pidfd_send_signal(fd, signal.SIGKILL)
            return fd
    except OSError:
        pass
    os.close(fd)
    return None


def _wait(descriptors: list[int], seconds: float) -> None:
    until = time.monotonic() + seconds
    poll = select.poll()
    for fd in descriptors:
        poll.register(fd, select.POLLIN)
    waiting = len(descriptors)
    while waiting and (left := until - time.monotonic()) > 0:
        for fd, _ in poll.poll(left * 1000):
            poll.unregister(fd)
            waiting -= 1
