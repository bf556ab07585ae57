"""Taking away what a ticket of this machine names, from the ticket alone.

Order: processes (first those that bear the label, then whatever is still in its control groups), then the groups, then
the folder. Each step is harmless where there is nothing left to do; what cannot be done is said and not forgotten. A
ticket was read from a file: a group that is none of its sandbox's own is left alone.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

from rollbook.envs.foreign import one_line
from rollbook.envs.sandbox.groups import is_group_of, remove_groups
from rollbook.envs.sandbox.host_processes import end_labelled
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
    ours = [each for each in ticket.groups if is_group_of(ticket.id, each)]
    if strange := set(ticket.groups) - set(ours):
        problems.append(f"no control groups of it: {', '.join(sorted(strange))}")
    if left := remove_groups(ours, patience):
        problems.append(f"control groups remain: {', '.join(left)}")
    if ticket.workspace is not None:
        problems += _remove_folder(Path(ticket.workspace))
    if problems:
        raise SandboxRemains(f"sandbox {ticket.id}: {'; '.join(problems)}")


def _remove_folder(folder: Path) -> list[str]:
    """Remove a folder without following links out of it. Folders that forbid it are opened first."""
    try:
        if folder.is_symlink():
            folder.unlink()
        else:
            shutil.rmtree(folder)
    except FileNotFoundError:
        return []
    except (OSError, RecursionError):
        for tool in (["chmod", "-R", "u+rwx"], ["rm", "-rf"]):
            done = subprocess.run([*tool, "--", folder], capture_output=True, check=False)  # noqa: S603 (no shell)
        if os.path.lexists(folder):
            return [f"{folder}: {one_line(done.stderr.decode(errors='replace'))}"]
    return []
