"""Routed experts on disk: a section of its own, which is neither read nor needed where nobody asks for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from rollbook.errors import RecordError, StoreError
from rollbook.store import RunReader, RunWriter, SegmentReader, redact_trace
from rollbook.store.frame import Frame, FrameKind, SectionId
from rollbook.store.scan import open_frames
from rollbook.trace import Trace, samples
from tests.store.made import content, finish, new_trace
from tests.store.runs import abandon
from tests.trace.test_experts import add, routed


def routed_trace(rollout: str = "r", turns: int = 3) -> Trace:
    trace = new_trace(rollout)
    for seed in range(turns):
        add(trace, 4, routed(seed, 4))
    return trace


def test_they_are_read_where_they_are_asked_for(tmp_path: Path) -> None:
    trace = finish(routed_trace())
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(trace)
    plain = RunReader(tmp_path / "run", strict=True).get("r")
    assert (len(plain.graph.experts), plain.graph.experts.left_out) == (0, True)
    assert plain.graph.tokens.view.tobytes() == trace.graph.tokens.view.tobytes()
    reader = RunReader(tmp_path / "run", strict=True, experts=True)
    for whole in (reader.get("r"), *reader.traces()):
        assert content(whole) == content(trace)
        (mine,), (other,) = samples(trace, experts=True), samples(whole, experts=True)
        assert mine.routed_experts is not None
        assert other.routed_experts is not None
        assert mine.routed_experts.tobytes() == other.routed_experts.tobytes()
    with RunWriter.create(tmp_path / "copy") as writer, pytest.raises(RecordError, match="would lose them"):
        writer.seal(plain)


def test_a_dead_writer_keeps_those_of_finished_turns(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    trace = new_trace("r")
    writer.begin(trace)
    for seed in range(3):
        add(trace, 4, routed(seed, 4))
        writer.turn(trace)
    abandon(writer)
    with RunWriter.open(tmp_path / "run") as writer:
        writer.seal_interrupted()
    found = RunReader(tmp_path / "run", experts=True).get("r")
    assert [np.array_equal(found.graph[node].routed_experts, routed(node - 1, 4)) for node in (1, 2, 3)] == [True] * 3


def test_damage_in_them_does_not_reach_who_does_without(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(finish(routed_trace()))
    (path,) = (tmp_path / "run" / "segments").iterdir()
    with open_frames(path) as file:
        (frame,) = (each for each in file.walk() if isinstance(each, Frame) and each.kind == FrameKind.TRACE)
    row = frame.sections[SectionId.EXPERTS]
    assert row.offset + row.stored == frame.length
    data = bytearray(path.read_bytes())
    data[frame.offset + row.offset + 5] ^= 1
    path.write_bytes(data)
    assert len(RunReader(tmp_path / "run", strict=True).get("r").graph) == 4
    with pytest.raises(StoreError, match="CRC"):
        RunReader(tmp_path / "run", experts=True).get("r")


def test_a_redaction_keeps_those_of_other_nodes(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(finish(routed_trace()))
    redact_trace(tmp_path / "run", "r", 2)
    (path,) = (tmp_path / "run" / "segments").iterdir()
    assert list(SegmentReader(path, experts=True).get("r").graph.experts) == [1, 3]


def test_a_trace_without_any_is_stored_as_before(tmp_path: Path) -> None:
    trace = new_trace("r")
    add(trace, 2, None)
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(finish(trace))
    (path,) = (tmp_path / "run" / "segments").iterdir()
    with open_frames(path) as file:
        sections = [set(each.sections) for each in file.walk() if isinstance(each, Frame)]
    assert sections[1] == {1, 2, 3, 4, 5}
    assert not RunReader(tmp_path / "run").get("r").graph.experts.left_out
