"""Opening what lies in a run folder, which others may have made.

Rule: a run is of plain files and folders. Below the folder that was named no symbolic link is followed, for it leads a
reader to what is no part of the run, and a writer to what it would cut or write over; no pipe or device is waited for.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from stat import S_ISREG

from rollbook.errors import StoreError

__all__ = ["open_plain", "read_plain", "refuse_links"]


def open_plain(path: Path, flags: int) -> int:
    """A descriptor of the plain file `path`; raises `OSError` where it is something else or cannot be opened."""
    try:
        descriptor = os.open(path, flags | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "it is a symbolic link, which is not followed", str(path)) from None
        raise
    if not S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is no plain file", str(path))
    return descriptor


def read_plain(path: Path) -> bytes:
    """All of a plain file; raises `OSError`."""
    with os.fdopen(open_plain(path, os.O_RDONLY), "rb") as file:
        return file.read()


def refuse_links(root: Path, path: Path) -> Path:
    """`path`, which lies below the run folder `root`. Raises `StoreError` where it, or a folder on the way from `root`,
    is a symbolic link."""
    way = root
    for name in path.relative_to(root).parts:
        way /= name
        if way.is_symlink():
            raise StoreError(f"{way} is a symbolic link, which is not followed inside a run; move there what it names")
    return path
