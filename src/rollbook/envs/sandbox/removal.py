"""Taking away what a ticket of this machine names, from the ticket alone.

Order: processes (first those that bear the label, then whatever is still in its control groups), then the groups, then
the folder. Each step is harmless where there is nothing left to do; what cannot be done is said and not forgotten.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
from pathlib import Path

from rollbook.envs.sandbox.groups import members, remove_groups
from rollbook.envs.sandbox.processes import end_labelled
from rollbook.envs.sandbox.protocol import SandboxRemains, Ticket

__all__ = ["LOCAL", "remove_local"]

LOCAL = "local"
"""Marks tickets of sandboxes on this machine."""
PATIENCE = 5.0
"""Seconds that killed processes have to go."""


def remove_local(ticket: Ticket, *, scan: bool = True, patience: float = PATIENCE) -> None:
    """Remove all that the ticket names. `scan`: look for labelled processes; False where none can be. Blocks until
    they are gone, for `patience` seconds at most each for processes and groups. Raises `SandboxRemains`."""
    problems: list[str] = []
    if scan and (left := end_labelled(ticket.label, patience)):
        problems.append(f"processes {left} did not end")
    for pid in members(ticket.groups):
        _kill(pid)
    if left := remove_groups(ticket.groups, patience):
        problems.append(f"control groups remain: {', '.join(left)}")
    if ticket.workspace is not None:
        problems += _remove_folder(Path(ticket.workspace))
    if problems:
        raise SandboxRemains(f"sandbox {ticket.id}: {'; '.join(problems)}")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _remove_folder(folder: Path) -> list[str]:
    """Remove a folder without following links out of it. Folders that forbid it are opened first."""
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        return []
    except OSError:
        for place, _, _ in os.walk(folder):
            if not stat.S_ISLNK(os.lstat(place).st_mode):
                os.chmod(place, 0o700)
        try:
            shutil.rmtree(folder)
        except OSError as error:
            return [f"{folder}: {error.strerror}"]
    return []
