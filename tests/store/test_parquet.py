"""The summary table: one row per rollout, absent values null."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.store import RunReader, RunWriter
from rollbook.trace import Ending, Reason
from tests.store.made import new_trace, whole_trace

pq = pytest.importorskip("pyarrow.parquet")
parquet = pytest.importorskip("rollbook.store.parquet")


def test_one_row_a_rollout(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(whole_trace("r0", 1))
        lost = new_trace("r1 \udc80", 2)
        lost.end(Ending(Reason.SANDBOX_LOST))
        writer.seal(lost)
    rows = list(RunReader(tmp_path / "run").summaries())
    assert parquet.write_summaries(rows, tmp_path / "table.parquet") == 2
    first, second = pq.read_table(tmp_path / "table.parquet").to_pylist()
    assert (first["rollout"], first["kind"], first["reward"]) == ("r0", "submitted", 0.5)
    assert dict(first["parse"]) == {"ok": 3, "invalid_json": 3}
    assert first["logprob_mean"] == rows[0].logprob_mean
    assert second["rollout"] == "r1 \\udc80"
    assert (second["reason"], second["reward"], second["logprob_mean"]) == ("sandbox_lost", None, None)
    assert list(first) == list(rows[0].__struct_fields__)


def test_no_rows_still_have_columns(tmp_path: Path) -> None:
    assert parquet.write_summaries([], tmp_path / "t.parquet") == 0
    assert "reward" in pq.read_table(tmp_path / "t.parquet").column_names
