import errno
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.export import export, parquet
from rollbook.export.jsonl import open_writer as jsonl_writer
from rollbook.trace import TurnReward, samples
from tests.export.build import batch, end, names, sound, start, turn


def written(*traces: object) -> pa.Table:
    sink = pa.BufferOutputStream()
    writer = parquet.open_writer(sink)
    for trace in traces:
        for sample in samples(trace):
            writer.write(sample)
    writer.finish()
    writer.release()
    return pq.read_table(pa.BufferReader(sink.getvalue()))


def test_a_row_holds_the_same_as_a_line(tmp_path: Path) -> None:
    trace = turn(turn(start("r"), (5, 6), version=3), (7,), version=None)
    trace.score(0.5, {"right": 0.5}, (TurnReward(1, 0.25),))
    source = batch([end(trace, reward=None), sound("s", reward=None)])
    export(source, "parquet", tmp_path / "out.parquet")
    export(source, "jsonl", tmp_path / "out.jsonl")
    rows = pq.read_table(tmp_path / "out.parquet").to_pylist()
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    for row, line in zip(rows, lines, strict=True):
        row["samplings"] = json.loads(row["samplings"])
        row["reward_parts"] = dict(row["reward_parts"])
        row["turn_rewards"] = [[each["turn"], each["value"]] for each in row["turn_rewards"]]
        row["logprobs"] = [None if np.isnan(value) else value for value in row["logprobs"]]
        assert row == line


@given(st.lists(st.floats(max_value=0, width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_a_logprob_comes_back_bit_for_bit(values: list[float]) -> None:
    trace = end(turn(start(), range(len(values)), logprobs=values))
    (sample,) = samples(trace)
    read = written(trace)["logprobs"].combine_chunks().flatten().to_numpy()
    assert read.dtype == np.float32
    assert read.view(np.uint32).tolist() == sample.logprobs.view(np.uint32).tolist()


def test_row_groups_are_bounded_by_rows(tmp_path: Path) -> None:
    for rows, groups in ((700, [512, 188]), (512, [512])):
        out = tmp_path / str(rows)
        export(batch(sound(f"r{place}") for place in range(rows)), "parquet", out)
        file = pq.ParquetFile(out).metadata
        assert [file.row_group(place).num_rows for place in range(file.num_row_groups)] == groups


def test_a_full_row_group_is_not_kept_in_memory() -> None:
    file = io.BytesIO()
    writer = parquet.open_writer(file)
    (sample,) = samples(sound())
    before = file.tell()
    for _ in range(511):
        writer.write(sample)
    assert file.tell() == before
    writer.write(sample)
    assert file.tell() > before
    writer.release()


def test_row_groups_are_bounded_by_tokens(tmp_path: Path) -> None:
    traces = (sound(f"r{place}", ids=range(700_000)) for place in range(5))
    export(batch(traces), "parquet", tmp_path / "out")
    file = pq.ParquetFile(tmp_path / "out").metadata
    assert [file.row_group(place).num_rows for place in range(file.num_row_groups)] == [2, 2, 1]


def test_logprobs_are_split_by_byte(tmp_path: Path) -> None:
    export(batch([sound()]), "parquet", tmp_path / "out")
    group = pq.ParquetFile(tmp_path / "out").metadata.row_group(0)
    columns = {group.column(place).path_in_schema: group.column(place) for place in range(group.num_columns)}
    assert "BYTE_STREAM_SPLIT" in columns["logprobs.list.element"].encodings
    assert all(column.compression == "ZSTD" for column in columns.values())


def test_a_lone_surrogate_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"rollout 'a.ud800': rollout holds a lone surrogate"):
        export(batch([sound("a\ud800")]), "parquet", tmp_path / "out")
    trace = turn(start())
    trace.score(1.0, {"\udfff": 1.0})
    with pytest.raises(UsageError, match="reward part"):
        export(batch([end(trace, reward=None)]), "parquet", tmp_path / "out")
    assert names(tmp_path) == []


def test_the_writers_take_the_same_samples(tmp_path: Path) -> None:
    (sample,) = samples(sound())
    with (tmp_path / "x").open("wb") as file:
        jsonl_writer(file).write(sample)
    assert written(sound()).num_rows == 1


class Full:
    """A file on a full disk, from some byte on."""

    def __init__(self, room: int) -> None:
        self.room = room
        self.refused = 0

    def write(self, data: bytes) -> int:
        self.room -= len(data)
        if self.room < 0:
            self.refused += 1
            raise OSError(errno.ENOSPC, "no space")
        return len(data)


@pytest.mark.parametrize("room", [0, 2, 100, 2000])
def test_a_full_disk_is_an_error_once_and_letting_go_is_none(room: int) -> None:
    file = Full(room)
    with pytest.raises(OSError, match="no space"):
        write_into(file)
    assert file.refused == 1, "nothing is written after an error"


def test_letting_go_before_the_end_writes_nothing_more() -> None:
    file = io.BytesIO()
    writer = parquet.open_writer(file)
    for place in range(600):  # more than a row group
        for sample in samples(sound(f"r{place}", ids=range(place, place + 20))):
            writer.write(sample)
    written = file.getvalue()
    writer.release()
    assert len(written) > 4
    assert file.getvalue() == written


def write_into(file: Full) -> None:
    writer = parquet.open_writer(file)
    try:
        for place in range(600):
            for sample in samples(sound(f"r{place}", ids=range(place, place + 20))):
                writer.write(sample)
        writer.finish()
    finally:
        writer.release()
