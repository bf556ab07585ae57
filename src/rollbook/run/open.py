"""A stored run, opened for reading."""

from __future__ import annotations

import os

from rollbook.store import RunReader

__all__ = ["open_run"]


def open_run(path: str | os.PathLike[str], *, experts: bool = False) -> RunReader:
    """The run in the folder `path`: its traces, summaries and annotations, also while it is being written. `experts`:
    read routed experts along.

    Raises `StoreError` where the folder is no run, `NewerFormat` where a newer version wrote it. What cannot be read is
    skipped and told in the reader's `report`.
    """
    return RunReader(path, experts=experts)
