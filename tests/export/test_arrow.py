"""Arrow: a stream that pyarrow and datasets map, with the rows of Parquet."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rollbook.errors import UsageError
from rollbook.export import arrow, export
from rollbook.trace import TurnReward, samples
from tests.export.build import batch, end, names, sound, start, turn


def read(path: Path) -> pa.Table:
    with pa.memory_map(str(path)) as source:
        return pa.ipc.open_stream(source).read_all()


def test_rows_are_those_of_parquet(tmp_path: Path) -> None:
    trace = turn(turn(start("r"), (5, 6), version=3), (7,), version=None)
    trace.score(0.5, {"right": 0.5}, (TurnReward(1, 0.25),))
    source = batch([end(trace, reward=None), sound("s", reward=None)])
    for form in ("arrow", "parquet"):
        export(source, form, tmp_path / form)
    found, wanted = read(tmp_path / "arrow").to_pylist(), pq.read_table(tmp_path / "parquet").to_pylist()
    for row, want in zip(found, wanted, strict=True):
        row["reward_parts"] = [(each["part"], each["value"]) for each in row["reward_parts"]]
        assert repr(row) == repr(want)


def test_logprobs_are_bit_for_bit_and_batches_are_bounded(tmp_path: Path) -> None:
    (sample,) = samples(sound())
    export(batch(sound(f"r{place}") for place in range(700)), "arrow", tmp_path / "out")
    table = read(tmp_path / "out")
    logprobs = table["logprobs"].chunk(0)[0].values.to_numpy()
    assert logprobs.tobytes() == sample.logprobs.tobytes()
    assert [len(chunk) for chunk in table["logprobs"].chunks] == [64] * 10 + [60]
    assert table.schema.metadata == {b"rollbook.samples": b"2"}


def test_advantages_are_null_where_turns_have_none_of_their_own() -> None:
    file = io.BytesIO()
    writer = arrow.open_writer(file)
    plain, turned = sound("a"), turn(turn(start("b"), (1, 2)), (3,))
    for sample in (*samples(plain), *samples(turned, turn_advantages={0: 0.5, 1: -1.0})):
        writer.write(sample)
    writer.finish()
    writer.release()
    found = pa.ipc.open_stream(pa.BufferReader(file.getvalue())).read_all()["advantages"].to_pylist()
    assert found[0] is None
    assert [None if np.isnan(value) else value for value in found[1]] == [None] * 4 + [0.5, 0.5, None, -1.0]


def test_a_lone_surrogate_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rollout 'a.ud800': rollout holds a lone surrogate"):
        export(batch([sound("a\ud800")]), "arrow", tmp_path / "out")
    trace = turn(start())
    trace.score(1.0, {"\udfff": 1.0})
    with pytest.raises(UsageError, match="reward part"):
        export(batch([end(trace, reward=None)]), "arrow", tmp_path / "out")
    assert names(tmp_path) == []


def test_datasets_reads_the_file(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    export(batch([sound("a"), sound("b")]), "arrow", tmp_path / "out.arrow")
    rows = datasets.Dataset.from_file(str(tmp_path / "out.arrow"))
    assert rows["rollout"][:] == ["a", "b"]
    assert rows[0]["token_ids"] == [0, 1, 2, 99, 10, 11]
