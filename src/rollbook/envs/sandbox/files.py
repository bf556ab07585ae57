"""Reading a file that code of the policy may have made, without going where it points.

Order of the rules: the path is relative and has no ``..``; each folder on the way is opened from the one before, never
through a link; the file is opened without following a link and without waiting for a pipe; only a plain file is read,
and one over the limit is refused, before and after it was read.
"""

from __future__ import annotations

import os
import stat
from pathlib import PurePosixPath

from rollbook.envs.sandbox.protocol import FileRefused

__all__ = ["encodable", "parts_of", "read_beneath"]

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


def parts_of(path: str) -> tuple[str, ...]:
    """The names on the way. Raises `FileRefused` for a path that is empty, absolute or leads up."""
    parts = PurePosixPath(path).parts
    if not parts or path.startswith("/") or ".." in parts or "\0" in path or not encodable(path):
        raise FileRefused(f"{path!r}: give a path below the workspace")
    return parts


def encodable(text: str) -> bool:
    """True for text that can be the name of a file, or an argument."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def read_beneath(folder: int, path: str, limit: int) -> bytes:
    """The file `path` below the open `folder`. Raises `FileRefused`."""
    *folders, name = parts_of(path)
    at = os.dup(folder)
    try:
        for each in folders:
            at = _step(at, each, _FOLDER)
        at = _step(at, name, _FILE)
        return _read(at, path, limit)
    except OSError as error:
        raise FileRefused(f"{path!r}: {error.strerror}") from error
    finally:
        os.close(at)


def _step(at: int, name: str, flags: int) -> int:
    """Open what lies in the folder `at`, and close that: a path of thousands of folders takes two descriptors."""
    found = os.open(name, flags, dir_fd=at)
    os.close(at)
    return found


def _read(fd: int, path: str, limit: int) -> bytes:
    found = os.fstat(fd)
    if not stat.S_ISREG(found.st_mode):
        raise FileRefused(f"{path!r}: not a plain file")
    if found.st_size > limit:
        raise FileRefused(f"{path!r}: {found.st_size} bytes are more than {limit}")
    data = bytearray()
    while len(data) <= limit and (chunk := os.read(fd, min(1 << 20, limit + 1 - len(data)))):
        data += chunk
    if len(data) > limit:
        raise FileRefused(f"{path!r}: more than {limit} bytes")
    return bytes(data)
