"""Writing into the cache: a file is there whole or not at all, whoever else writes it at the same time."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from rollbook.errors import ModelError

__all__ = ["cache_problem", "put_in_cache", "scratch_folder"]


def put_in_cache(path: Path, data: bytes) -> None:
    """Put `data` at `path` by a rename. Raises `ModelError`."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=".part-")
        try:
            with os.fdopen(handle, "wb") as file:
                file.write(data)
            Path(name).replace(path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise cache_problem(path.parent, error) from error


def scratch_folder(cache: Path) -> tempfile.TemporaryDirectory[str]:
    """A private folder on the cache's own file system, gone when its ``with`` block ends. Raises `ModelError`."""
    try:
        cache.mkdir(parents=True, exist_ok=True)
        return tempfile.TemporaryDirectory(dir=cache, prefix=".fetch-")
    except OSError as error:
        raise cache_problem(cache, error) from error


def cache_problem(cache: Path, error: OSError) -> ModelError:
    """`error` in words, with the remedy."""
    return ModelError(
        f"cannot write into the model cache {cache}: {error.strerror}; free some space there, or name another cache "
        "folder with ROLLBOOK_CACHE"
    )
