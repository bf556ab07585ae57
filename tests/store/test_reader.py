"""The reader: it follows a run that is being written, sees whole frames only, and says what it could not read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rollbook.errors import StoreError
from rollbook.store import DamageReason, RunReader, RunWriter, SegmentReader
from rollbook.trace import Reason, TraceSource, summarise
from tests.store.made import content, whole_trace
from tests.store.runs import SMALL, abandon


def test_it_is_a_trace_source(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    source: TraceSource = RunReader(tmp_path / "run")
    assert list(source.traces()) == list(source.summaries()) == source.annotations() == []
    with pytest.raises(KeyError):
        source.get("r")


def test_it_follows_a_live_run(tmp_path: Path) -> None:
    traces = [whole_trace(f"r{seed}", seed) for seed in range(8)]
    with RunWriter.create(tmp_path / "run", options=SMALL) as writer:
        reader = RunReader(tmp_path / "run", strict=True)
        for count, trace in enumerate(traces, 1):
            writer.seal(trace)
            assert len(reader) == count
            assert trace.id in reader
            assert content(reader.get(trace.id)) == content(trace)
            assert list(reader.summaries()) == [summarise(each) for each in traces[:count]]
    assert [content(trace) for trace in reader.traces()] == list(map(content, traces))
    assert len(list((tmp_path / "run" / "segments").iterdir())) > 1


def test_a_frame_half_written_is_not_seen_and_then_seen(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(whole_trace("r0"))
        writer.seal(whole_trace("r1", 1))
    (path,) = (tmp_path / "run" / "segments").iterdir()
    data, last = path.read_bytes(), SegmentReader(path).entries()[1]
    reader = RunReader(tmp_path / "run", strict=True)
    for size in range(last.offset, last.offset + last.length, 50):
        path.write_bytes(data[:size])
        assert reader.rollouts() == ["r0"]
        assert [damage.reason for damage in reader.report.damages] == [DamageReason.UNFINISHED] * (size > last.offset)
    path.write_bytes(data[: last.offset + last.length])
    assert reader.rollouts() == ["r0", "r1"]
    assert reader.report.clean


def test_strict_raises_where_the_other_reports(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        for seed in range(3):
            writer.seal(whole_trace(f"r{seed}", seed))
    (path,) = (tmp_path / "run" / "segments").iterdir()
    middle = SegmentReader(path).entries()[1]
    data = bytearray(path.read_bytes())
    data[middle.offset + middle.length - 1] ^= 1
    path.write_bytes(data)
    reader = RunReader(tmp_path / "run")
    assert [trace.id for trace in reader.traces()] == ["r0", "r2"]
    (damage,) = reader.report.damages
    assert (damage.offset, damage.bytes, damage.reason) == (middle.offset, middle.length, DamageReason.SECTION)
    assert f"at byte {middle.offset}: section" in str(reader.report)
    with pytest.raises(StoreError, match="CRC"):
        reader.get("r1")
    with pytest.raises(StoreError, match="section"):
        list(RunReader(tmp_path / "run", strict=True).traces())


def test_the_later_of_two_records_counts(tmp_path: Path) -> None:
    """A damaged record in a segment that stays open, and the one that was recovered from the journal."""
    run = tmp_path / "run"
    writer = RunWriter.create(run, writer="w")
    trace = whole_trace("r0")
    writer.begin(trace)
    writer.seal(trace)
    abandon(writer)
    (path,) = (run / "segments").iterdir()
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data + b"x" * 100)
    with RunWriter.open(run, writer="next") as writer:
        assert writer.seal_interrupted() == ["r0"]
    reader = RunReader(run)
    for _ in range(3):
        assert len(reader) == 1
        assert [row.reason for row in reader.summaries()] == [Reason.FINAL_ANSWER]
        assert reader.get("r0").graph[0].message == trace.graph[0].message
        assert [found.id for found in reader.traces()] == ["r0"]


@pytest.mark.parametrize("make", [Path.mkdir, os.mkfifo])
def test_what_is_no_plain_file_among_the_segments_is_told(tmp_path: Path, make: Callable[[Path], None]) -> None:
    RunWriter.create(tmp_path / "run").close()
    make(tmp_path / "run" / "segments" / "a-000009.seg")
    reader = RunReader(tmp_path / "run")
    assert list(reader.traces()) == []
    assert "no plain file" in str(reader.report)
