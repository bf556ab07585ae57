"""Tickets on disk: one small file a sandbox, there before the sandbox is and gone after it.

Rules: a ticket is written whole (a new file, synced, then renamed, then its folder synced); the folder belongs to this
user alone; a file that cannot be read as a ticket is left alone and shown. The folder is this machine's own, for a
ticket means nothing elsewhere.
"""

from __future__ import annotations

import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollbook.envs.sandbox.protocol import Ticket
from rollbook.errors import UsageError

__all__ = ["Registry", "Unreadable", "default_folder"]

SUFFIX = ".json"


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A file in the folder that is no ticket."""

    path: Path
    problem: str


def default_folder() -> Path:
    """The run-time folder of this user, or one of its own where files are temporary."""
    user = Path(f"/run/user/{os.getuid()}")
    if os.access(user, os.W_OK):
        return user / "rollbook" / "sandboxes"
    return Path(tempfile.gettempdir()) / f"rollbook-{os.getuid()}" / "sandboxes"


class Registry:
    """The tickets in one folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises `UsageError` where it cannot be this user's alone."""
        self.folder = folder
        try:
            for each in (folder.parent, folder):
                each.mkdir(mode=0o700, exist_ok=True, parents=True)
            found = folder.lstat()
        except OSError as error:
            raise UsageError(f"the folder for sandboxes {folder} cannot be used: {error}; give another one") from error
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o022:
            raise UsageError(f"the folder for sandboxes {folder} must be a folder of yours that nobody else can write")

    def workspace(self, name: str) -> Path:
        """Where the folder of the sandbox `name` lies, if it has one."""
        return self.folder / f"{name}.work"

    def put(self, ticket: Ticket) -> None:
        """Write a ticket, or write it anew. It is on disk when this returns. Raises `OSError`."""
        self.write(ticket)
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def write(self, ticket: Ticket) -> None:
        """As `put`, but what was there before may come back after a power cut."""
        path = self._path(ticket.id)
        with open(f"{path}.new", "wb") as file:
            file.write(msgspec.json.encode(ticket))
            file.flush()
            os.fsync(file.fileno())
        os.replace(f"{path}.new", path)

    def remove(self, name: str) -> None:
        """Forget a ticket."""
        self._path(name).unlink(missing_ok=True)

    def tickets(self) -> tuple[list[Ticket], list[Unreadable]]:
        """All that lies there."""
        found: list[Ticket] = []
        bad: list[Unreadable] = []
        for path in sorted(self.folder.glob(f"*{SUFFIX}")):
            try:
                found.append(msgspec.json.decode(path.read_bytes(), type=Ticket))
            except FileNotFoundError:
                continue  # its sandbox has just been removed
            except (OSError, msgspec.MsgspecError) as error:
                bad.append(Unreadable(path, str(error)))
        return found, bad

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"
