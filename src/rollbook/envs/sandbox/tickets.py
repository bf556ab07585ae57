"""Tickets on disk: one small file a sandbox, there before the sandbox is and gone after it.

Rules: a ticket is written whole (a new file, synced, then renamed, then its folder synced); the folder belongs to this
user alone; a file that cannot be read as a ticket, or names what is not its own sandbox's, is left alone and shown, for
what a ticket names is killed and deleted. The folder is this machine's own, for a ticket means nothing elsewhere.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollbook.envs.sandbox.files import read_beneath
from rollbook.envs.sandbox.protocol import FileRefused, Ticket
from rollbook.errors import RollbookError, UsageError

__all__ = ["TicketFolder", "UnreadableTicket", "default_folder", "label_of"]

SUFFIX = ".json"
MAX_BYTES = 1 << 16
"""Of a ticket."""


def label_of(name: str) -> str:
    """What all processes bear that start something in the sandbox `name`."""
    return f"ROLLBOOK_SANDBOX={name}"


@dataclass(frozen=True, slots=True)
class UnreadableTicket:
    """A file in the folder that is no ticket."""

    path: Path
    problem: str


def default_folder() -> Path:
    """The run-time folder of this user, or one of its own where files are temporary."""
    user = Path(f"/run/user/{os.getuid()}")
    if os.access(user, os.W_OK):
        return user / "rollbook" / "sandboxes"
    return Path(tempfile.gettempdir()) / f"rollbook-{os.getuid()}" / "sandboxes"


class _Strange(RollbookError):
    """A ticket that names what is not its own sandbox's."""


def _trusted(folder: Path) -> bool:
    """True where what this user makes in the folder stays what it is: the folder, and a link to it, are this user's or
    root's, and others may write there only what is their own."""
    link, found = folder.lstat(), folder.stat()
    shared = found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX
    return {link.st_uid, found.st_uid} <= {os.geteuid(), 0} and not shared


class TicketFolder:
    """The tickets in one folder."""

    def __init__(self, folder: Path) -> None:
        """Makes the folder. Raises `UsageError` where it cannot be this user's alone."""
        self.folder = folder
        try:
            folder.parent.mkdir(mode=0o700, exist_ok=True, parents=True)
            if not _trusted(folder.parent):
                raise UsageError(f"the folder for sandboxes {folder} lies where others can swap it; give another one")
            folder.mkdir(mode=0o700, exist_ok=True)
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
        new = f"{path}.{os.getpid()}.new"
        with open(new, "wb") as file:
            file.write(msgspec.json.encode(ticket))
            file.flush()
            os.fsync(file.fileno())
        os.replace(new, path)

    def has(self, name: str) -> bool:
        """True where the ticket is there."""
        return os.path.lexists(self._path(name))

    def remove(self, name: str) -> None:
        """Forget a ticket."""
        self._path(name).unlink(missing_ok=True)

    def read_all(self) -> tuple[list[Ticket], list[UnreadableTicket]]:
        """All that lies there."""
        found: list[Ticket] = []
        bad: list[UnreadableTicket] = []
        folder = os.open(self.folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            for path in sorted(self.folder.glob(f"*{SUFFIX}")):
                try:
                    found.append(self._read(folder, path.name))
                except (FileRefused, msgspec.MsgspecError, _Strange) as error:
                    if os.path.lexists(path):  # else its sandbox has just been removed
                        bad.append(UnreadableTicket(path, str(error)))
        finally:
            os.close(folder)
        return found, bad

    def _read(self, folder: int, file: str) -> Ticket:
        ticket = msgspec.json.decode(read_beneath(folder, file, MAX_BYTES), type=Ticket)
        if f"{ticket.id}{SUFFIX}" != file or not re.fullmatch(r"[\w-]+", ticket.id):
            raise _Strange(f"the ticket of another sandbox, {ticket.id!r}")
        if ticket.label != label_of(ticket.id):
            raise _Strange(f"its label is {ticket.label!r}")
        if ticket.workspace not in (None, str(self.workspace(ticket.id))):
            raise _Strange(f"its workspace is {ticket.workspace!r}")
        return ticket

    def _path(self, name: str) -> Path:
        return self.folder / f"{name}{SUFFIX}"
