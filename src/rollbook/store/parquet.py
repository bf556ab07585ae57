"""The summary table as Parquet, for tools that ask questions of many rollouts. Always rebuilt from the summaries; the
extra ``parquet`` (pyarrow) is needed for this module alone.

Parquet text is UTF-8: a lone surrogate in an id is spelled ``\\udc80`` there.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from rollbook.store.append import replace_file
from rollbook.trace.summary import Summary

__all__ = ["write_summaries"]

# pyarrow comes without types; through Any the rest of the module is checked as strictly as the others
pa: Any = importlib.import_module("pyarrow")
pq: Any = importlib.import_module("pyarrow.parquet")

_TEXT = ("rollout", "run", "group", "episode", "task", "environment", "seat", "kind", "reason", "scoring")
_COUNTS = (
    "member",
    "attempt",
    "turns",
    "branches",
    "calls",
    "failed_calls",
    "tool_calls",
    "tokens",
    "sampled",
    "marks",
)
_NUMBERS = ("reward", "logprob_mean", "wall", "started", "finished")
_ROWS_A_GROUP = 100_000


def write_summaries(summaries: Iterable[Summary], path: str | os.PathLike[str]) -> int:
    """Write one row per summary, atomically; returns how many. Absent values are null."""
    rows = [_plain(summary) for summary in summaries]
    table = pa.Table.from_pylist(rows, schema=_schema())
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd", row_group_size=_ROWS_A_GROUP)
    replace_file(Path(path), buffer.getvalue())
    return len(rows)


def _schema() -> Any:
    kinds: dict[str, Any] = dict.fromkeys(_TEXT, pa.string())
    kinds |= dict.fromkeys(_COUNTS, pa.int64())
    kinds |= dict.fromkeys(_NUMBERS, pa.float64())
    kinds |= {"truncated": pa.bool_(), "parse": pa.map_(pa.string(), pa.int64())}
    return pa.schema([(name, kinds[name]) for name in Summary.__struct_fields__])


def _plain(summary: Summary) -> dict[str, Any]:
    row: dict[str, Any] = msgspec.structs.asdict(summary)
    row["parse"] = list(summary.parse.items())
    for name in _TEXT:
        if row[name] is not None:
            row[name] = str(row[name]).encode("utf-8", "backslashreplace").decode()
    return row
