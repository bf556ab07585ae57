from __future__ import annotations

from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rollbook.errors import StoreError
from rollbook.run.summary_table import SUMMARY_TABLE, write_summary_table
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Ending, PolicyRecord, Reason, Task, Trace, TraceHead


def run_of(folder: Path, count: int) -> Path:
    with RunWriter.create(folder) as writer:
        for number in range(count):
            task = Task(id=f"t{number}", prompt="Hello")
            head = TraceHead(rollout=f"r{number}", group="g", task=task, policies=(PolicyRecord(name="p"),))
            trace = Trace(head)
            trace.end(Ending(Reason.MAX_TURNS))
            writer.seal(trace)
    return folder


def test_one_row_a_rollout_and_the_run_stays_as_it_was(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 3)
    assert write_summary_table(folder)
    rows = pq.read_table(folder / SUMMARY_TABLE).to_pylist()
    assert [row["rollout"] for row in rows] == ["r0", "r1", "r2"]
    assert [row["reward"] for row in rows] == [None, None, None], "absent is not zero"
    reader = RunReader(folder, strict=True)
    assert [row.rollout for row in reader.summaries()] == ["r0", "r1", "r2"]


def test_it_is_rebuilt_whole(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 1)
    (folder / SUMMARY_TABLE).write_bytes(b"old")
    assert write_summary_table(folder)
    assert pq.read_table(folder / SUMMARY_TABLE).num_rows == 1


def test_where_it_cannot_be_written_a_message_says_so(tmp_path: Path) -> None:
    folder = run_of(tmp_path / "run", 1)
    (folder / SUMMARY_TABLE).mkdir()
    with pytest.raises(StoreError, match="cannot be written"):
        write_summary_table(folder)
