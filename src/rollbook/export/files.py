"""Files that appear whole or not at all.

Rules: what is written goes to a temporary file beside its place, is flushed to disk and then renamed; whatever goes
wrong, the temporary file is removed and a file that was there before is untouched; a link is followed, and what is no
plain file (a device, a pipe) or belongs to a run's own folder is never replaced; every failure of the file system
is a `StoreError` that names the path and the remedy.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from rollbook.errors import StoreError, UsageError

__all__ = ["refuse_taken", "replacing"]


def refuse_taken(path: Path, *, overwrite: bool) -> None:
    """Raise now what `replacing` would raise of a place that cannot be written."""
    with _failures(path):
        path = Path(os.path.realpath(path))
        _refuse_place(path)
        _refuse_existing(path, overwrite)


@contextmanager
def replacing(path: Path, *, overwrite: bool) -> Generator[BinaryIO]:
    """A file to write that takes the place of `path` when the block ends without an error."""
    with _failures(path):
        path = Path(os.path.realpath(path))
        _refuse_place(path)
        _refuse_existing(path, overwrite)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name[:100]}.", suffix=".part")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            _refuse_existing(path, overwrite)
            temporary.chmod(0o666 & ~_umask())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)


def _refuse_place(path: Path) -> None:
    for folder in (path.parent, path.parent.parent):
        if (folder / "run.json").exists() and (folder / "segments").is_dir():
            raise UsageError(f"{path} would lie in the run's own folder {folder}; choose another place")


def _refuse_existing(path: Path, overwrite: bool) -> None:
    if path.is_dir():
        raise UsageError(f"{path} is a folder; name a file")
    if path.exists() and not path.is_file():
        raise UsageError(f"{path} is no plain file; name one")
    if path.exists() and not overwrite:
        raise UsageError(f"{path} exists; choose another name, or have it replaced (--overwrite)")


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


_REMEDIES = {
    errno.ENOSPC: "the disk is full; make room or choose another folder",
    errno.EDQUOT: "the disk quota is used up; make room or choose another folder",
    errno.EFBIG: "the file would be larger than this system allows",
    errno.ENOENT: "its folder does not exist; make it first",
    errno.ENOTDIR: "its folder is a file; choose another place",
    errno.EACCES: "its folder cannot be written; choose another place",
    errno.EPERM: "its folder cannot be written; choose another place",
    errno.EROFS: "the file system is read-only; choose another place",
    errno.ENAMETOOLONG: "the name is too long",
}


@contextmanager
def _failures(path: Path) -> Generator[None]:
    try:
        yield
    except OSError as error:
        remedy = _REMEDIES.get(error.errno or 0, str(error))
        raise StoreError(f"cannot write {path}: {remedy}") from error
    except UnicodeEncodeError as error:
        raise UsageError(f"{str(path)!a} is no file name: it holds characters that no file system takes") from error
