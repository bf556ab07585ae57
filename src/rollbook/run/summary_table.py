"""The run's summary table, ``summary.parquet`` in its folder: one row a rollout, for tools that ask questions of many.

It is rebuilt whole from the record when a run finishes, and only where the extra ``parquet`` is installed: nothing of
Rollbook reads it.
"""

from __future__ import annotations

import importlib
from importlib.util import find_spec
from pathlib import Path

from rollbook.store import RunReader

__all__ = ["SUMMARY_TABLE", "write_summary_table"]

SUMMARY_TABLE = "summary.parquet"
"""The file's name within the run's folder."""


def write_summary_table(folder: Path) -> bool:
    """Write the table; False where the extra ``parquet`` is not installed. Raises `StoreError` where it cannot be
    written."""
    if find_spec("pyarrow") is None:
        return False
    importlib.import_module("rollbook.store.parquet").write_summaries(
        RunReader(folder).summaries(), folder / SUMMARY_TABLE
    )
    return True
