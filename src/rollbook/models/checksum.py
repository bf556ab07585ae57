"""The sha256 of a file, computed once for each state of the file.

A note in the cache folder remembers size, modification time and sum; it counts only while all of path, size and time
still match, and an unreadable note is as good as none. A note is a convenience: whoever can write into the cache can
forge it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path

import msgspec

from rollbook.errors import ModelError
from rollbook.models.files import put_in_cache

__all__ = ["file_sha256"]

CHUNK = 1 << 20


class _Note(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    path: str
    size: int
    mtime_ns: int
    sha256: str


def file_sha256(path: Path, notes: Path, on_bytes: Callable[[int], None] | None = None) -> str:
    """The hex sha256 of `path`; `notes` is the folder that remembers it. `on_bytes` hears the bytes read so far."""
    try:
        stat = path.stat()
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    key = str(path.resolve())
    note_path = notes / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.json"
    note = _read_note(note_path)
    if note and (note.path, note.size, note.mtime_ns) == (key, stat.st_size, stat.st_mtime_ns):
        return note.sha256
    digest = _hash(path, on_bytes)
    fresh = _Note(key, stat.st_size, stat.st_mtime_ns, digest)
    put_in_cache(note_path, msgspec.json.encode(fresh))
    return digest


def _read_note(path: Path) -> _Note | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Note)
    except (OSError, msgspec.DecodeError):
        return None  # it is computed again, and the note written anew


def _hash(path: Path, on_bytes: Callable[[int], None] | None) -> str:
    digest, done = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            while chunk := file.read(CHUNK):
                digest.update(chunk)
                done += len(chunk)
                if on_bytes:
                    on_bytes(done)
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    return digest.hexdigest()
