"""Annotations: one stream a producer, newest wins, never mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.errors import NewerFormat, RunLocked, StoreError
from rollbook.store import AnnotationWriter, DamageReason, RunReader, RunWriter
from rollbook.store.frame import FrameKind, Packer
from rollbook.trace import Annotation


def note(value: object, producer: str = "trainer", **fields: object) -> Annotation:
    return Annotation(producer=producer, name="advantage", rollout="r", value=value, **fields)  # type: ignore[arg-type]


def test_the_newest_of_a_key_counts(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.annotate([note(1.0), note(2.0, node=3), note("lone \udc80", "audit")])
        writer.annotate([note(3.0), note(10**30, step=1)])
    found = RunReader(tmp_path / "run", strict=True).annotations()
    assert [each.value for each in found] == ["lone \udc80", 3.0, 2.0, 10**30]


def test_another_process_annotates_while_the_run_is_written(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer, AnnotationWriter(tmp_path / "run", "person") as person:
        person.write([note("good", "person")])
        with pytest.raises(RunLocked, match="another process writes annotations of 'person'"):
            writer.annotate([note("bad", "person")])
        writer.annotate([note(1)])
    assert {each.value for each in RunReader(tmp_path / "run").annotations()} == {"good", 1}


def test_opening_the_run_leaves_a_stream_alone_that_is_being_written(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    path = tmp_path / "run" / "annotations" / "p.ann"
    with AnnotationWriter(tmp_path / "run", "p"):
        with path.open("ab") as file:
            file.write(b"RBF1 half a frame")
        with RunWriter.open(tmp_path / "run") as writer:
            assert writer.recovery.clean
    with RunWriter.open(tmp_path / "run") as writer:
        assert writer.recovery.bytes_cut == 17


def test_an_unfinished_tail_is_cut_before_writing(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    with AnnotationWriter(tmp_path / "run", "p") as stream:
        stream.write([note(1, "p")])
        stream.write([note(2, "p")])
    path = tmp_path / "run" / "annotations" / "p.ann"
    path.write_bytes(path.read_bytes()[:-1])
    reader = RunReader(tmp_path / "run", strict=True)
    assert [each.value for each in reader.annotations()] == [1]
    assert [damage.reason for damage in reader.report.damages] == [DamageReason.UNFINISHED]
    with AnnotationWriter(tmp_path / "run", "p") as stream:
        stream.write([note(3, "p", step=1)])
    assert [each.value for each in reader.annotations()] == [1, 3]
    assert reader.report.clean


def test_what_is_not_ours_is_not_written_behind(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    path = tmp_path / "run" / "annotations" / "p.ann"
    path.write_bytes(b"a note of somebody else, longer than a prefix")
    with pytest.raises(StoreError, match="move it away"):
        AnnotationWriter(tmp_path / "run", "p")
    assert path.read_bytes().startswith(b"a note")
    with pytest.raises(StoreError, match="foreign"):
        RunReader(tmp_path / "run", strict=True).annotations()


def test_a_stream_takes_its_own_producer_only(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    with AnnotationWriter(tmp_path / "run", "p") as stream, pytest.raises(StoreError, match="stream of 'p'"):
        stream.write([note(1, "q")])
    with pytest.raises(StoreError, match="not a Rollbook run"):
        AnnotationWriter(tmp_path, "p")


def test_a_newer_stream_is_refused(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    frame = bytearray(Packer().pack(FrameKind.FILE, b"\x83\xa7content\xabannotations\xa6format\x09\xa4wire\x01"))
    (tmp_path / "run" / "annotations" / "p.ann").write_bytes(frame)
    for attempt in (RunWriter.open, lambda run: RunReader(run).annotations()):
        with pytest.raises(NewerFormat, match="version 9"):
            attempt(tmp_path / "run")
