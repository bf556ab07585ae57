"""A stored run, opened for reading."""

from __future__ import annotations

import os
from pathlib import Path

from rollbook.errors import optional
from rollbook.models import default_cache
from rollbook.store import RunReader

__all__ = ["open_run"]


def open_run(path: str | os.PathLike[str], *, experts: bool = False, cache: Path | None = None) -> RunReader:
    """The run in the folder `path`: its traces, summaries and annotations, also while it is being written. `experts`:
    read routed experts along.

    `path` may be the URL of an object store to which a run was mirrored (``s3://bucket/prefix``; extra ``objects``):
    what it holds now is fetched into a folder below `cache`, by default the user's own. Opening again fetches what is
    new.

    Raises `StoreError` where the folder is no run, `NewerFormat` where a newer version wrote it. What cannot be read is
    skipped and told in the reader's `report`.
    """
    if isinstance(path, str) and "://" in path:
        path = _fetched(path, cache or default_cache())
    return RunReader(path, experts=experts)


def _fetched(url: str, cache: Path) -> Path:
    module = optional("rollbook.store.fetch", "obstore", says=lambda error: f"{url}: {error}")
    return module.fetch_run(url, cache / "runs")
