"""Appending whole frames to one file.

Rule: a frame is in the file whole or not at all. It goes out in one write; where that fails (disk full, quota), the
file is cut back to its length before and `StoreError` is raised, so the same frame can be written again later. What
the kernel took survives a kill of this process; a power loss only what was synced (`Sync`).
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from rollbook.errors import StoreError
from rollbook.store.plain_file import open_plain

__all__ = ["AppendFile", "StoreOptions", "Sync", "replace_file", "sync_folder"]

_CLOSED = -1
"""Stands for the descriptor of a closed file, whose number the system may have given to another one."""


class Sync(StrEnum):
    """When written frames are forced to the disk. Without it they survive SIGKILL, but not a power loss."""

    NONE = "none"
    """Never; the kernel writes them within about half a minute."""
    INTERVAL = "interval"
    """At a write, when the last sync is older than `StoreOptions.sync_seconds`; and on closing."""
    EACH = "each"
    """After each frame."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreOptions:
    """How a writer writes."""

    sync: Sync = Sync.NONE
    """When written frames are forced to the disk."""
    sync_seconds: float = 1.0
    """For `Sync.INTERVAL`."""
    segment_bytes: int = 256 << 20
    """A segment is sealed and a new one begun at about this size."""
    journal_bytes: int = 64 << 20
    """Likewise for the journal's generations."""
    level: int = 3
    """zstd level of sealed traces."""


class AppendFile:
    """One file that this process alone appends to."""

    __slots__ = ("_descriptor", "_options", "_synced", "_unsynced", "path", "size")

    def __init__(self, path: Path, options: StoreOptions, *, new: bool) -> None:
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | (os.O_EXCL if new else 0)
        try:
            self._descriptor = open_plain(path, flags)
        except OSError as error:
            raise StoreError(f"{path} cannot be opened for writing: {error.strerror}") from error
        self.path = path
        self.size = os.fstat(self._descriptor).st_size
        self._options = options
        self._synced = time.monotonic()
        self._unsynced = False
        if new and options.sync is not Sync.NONE:
            sync_folder(path.parent)

    @property
    def descriptor(self) -> int:
        """For locking."""
        return self._descriptor

    def append(self, frame: bytes) -> int:
        """Write one whole frame; returns its offset. Raises `StoreError`, and then the file is as it was."""
        if self._descriptor == _CLOSED:
            raise StoreError(f"{self.path} is closed already")
        offset = self.size
        view = memoryview(frame)
        try:
            if os.fstat(self._descriptor).st_size != offset:
                os.ftruncate(self._descriptor, offset)
            while view:
                view = view[os.write(self._descriptor, view) :]
            self._unsynced = True
            if self._sync_due():
                self.sync()
        except OSError as error:
            self._cut_back(offset)
            raise StoreError(
                f"{self.path} cannot be written: {error.strerror}. Nothing was stored of this step and nothing that "
                "was stored before is lost; make room and try again."
            ) from error
        self.size = offset + len(frame)
        return offset

    def _cut_back(self, offset: int) -> None:
        try:
            os.ftruncate(self._descriptor, offset)
        except OSError:
            return  # the next append finds the length wrong and cuts again; the next opening would, too

    def _sync_due(self) -> bool:
        match self._options.sync:
            case Sync.NONE:
                return False
            case Sync.EACH:
                return True
            case Sync.INTERVAL:
                return time.monotonic() - self._synced >= self._options.sync_seconds

    def sync(self) -> None:
        """Force what was written to the disk."""
        if self._unsynced:
            os.fsync(self._descriptor)
            self._unsynced = False
        self._synced = time.monotonic()

    def close(self) -> None:
        """Close the file, synced unless the option says never. A second time does nothing."""
        if self._descriptor == _CLOSED:
            return
        try:
            if self._options.sync is not Sync.NONE:
                self.sync()
        except OSError as error:
            raise StoreError(f"{self.path} cannot be synced: {error.strerror}") from error
        finally:
            os.close(self._descriptor)
            self._descriptor = _CLOSED


def replace_file(path: Path, data: bytes) -> None:
    """Write a whole file so that readers see the old one or the new one, synced. What lies at the temporary name is
    taken away first: it may be a link to anything."""
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        temporary.unlink(missing_ok=True)
        with os.fdopen(open_plain(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise StoreError(f"{path} cannot be written: {error.strerror}") from error


def sync_folder(folder: Path) -> None:
    """Force the names in a folder to the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
