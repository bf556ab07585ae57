"""Redaction: text and ids of a node go from the disk together; everything else stays as it is, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rollbook.errors import StoreError
from rollbook.store import RunReader, RunWriter, SegmentReader, redact_trace
from rollbook.trace import Mark, Message, Origin, Role, Trace, make_runs
from tests.store.made import content, finish, new_trace, whole_trace
from tests.store.runs import abandon


def secret_trace() -> Trace:
    trace = new_trace("r1", 1)
    ids = np.arange(900, 904, dtype=np.int32)
    trace.graph.add(
        Message(role=Role.USER, content="hunter2"), parent=0, origin=Origin.USER, token_ids=ids, runs=make_runs((1, 4))
    )
    return finish(trace)


def test_the_text_and_the_ids_are_gone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    others = [whole_trace("r0", 0), whole_trace("r2", 2)]
    with RunWriter.create(run) as writer:
        for trace in (others[0], secret_trace(), others[1]):
            writer.seal(trace)
    reader = RunReader(run)
    assert reader.get("r1").graph[1].message.content == "hunter2"
    redact_trace(run, "r1", 1)
    node = reader.get("r1").graph[1]
    assert (node.message, node.mark, len(node.token_ids)) == (Message(role=Role.USER), Mark.REDACTED, 0)
    assert reader.rollouts() == ["r0", "r1", "r2"]
    assert [content(reader.get(trace.id)) for trace in others] == list(map(content, others))
    assert [row.tokens for row in reader.summaries()][1] == 5
    (path,) = (run / "segments").iterdir()
    assert SegmentReader(path).entries()[2].offset < path.stat().st_size
    assert reader.report.clean
    assert not list(run.glob("*/.*"))


def test_it_is_refused_where_it_cannot_be_whole(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = RunWriter.create(run)
    writer.begin(new_trace("running"))
    writer.seal(secret_trace())
    with pytest.raises(StoreError, match="is being written"):
        redact_trace(run, "r1", 1)
    abandon(writer)
    with pytest.raises(StoreError, match="in flight"):
        redact_trace(run, "r1", 1)
    with RunWriter.open(run) as writer:
        writer.seal_interrupted()
    with pytest.raises(KeyError):
        redact_trace(run, "other", 1)
    redact_trace(run, "r1", 1)
    assert RunReader(run, strict=True).get("r1").graph[1].mark is Mark.REDACTED


def test_a_damaged_segment_is_not_rewritten(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r0"))
        writer.seal(secret_trace())
    (path,) = (run / "segments").iterdir()
    first = SegmentReader(path).entries()[0]
    data = bytearray(path.read_bytes())
    data[first.offset + first.length - 1] ^= 1
    path.write_bytes(data)
    with pytest.raises(StoreError, match="CRC"):
        redact_trace(run, "r1", 1)
    assert path.read_bytes() == data
