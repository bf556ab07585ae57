"""The store: whole records or none; what cannot be read is told, never skipped in silence."""

from __future__ import annotations

import resource
import shutil
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import StoreError
from rollbook.export import export
from rollbook.store import DamageReason, Manifest, RunReader, RunWriter, write_manifest
from rollbook.trace import (
    Annotation,
    MemorySink,
    Trace,
)
from tests.cases.case import (
    REPORTS,
    add_turn,
    add_user,
    attempt,
    bits,
    head,
    report,
)
from tests.store.newer import framed, with_section


def note(place: int, value: Any = "yes") -> Annotation:
    return Annotation(producer="person", name=f"label-{place}", rollout="r0", value=value)


def grown(name: str, turns: int = 2) -> Trace:
    """A running trace of some turns."""
    trace = Trace(head(name))
    add_user(trace, "?", [1, 2])
    for place in range(turns):
        add_turn(trace, f"turn {place}", [5, 6, 7])
    return trace


@contextmanager
def disk_full(path: Path, room: int) -> Generator[None]:
    """Only `room` more bytes fit into the file; a longer write stops in the middle, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + room, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def only(folder: Path, pattern: str) -> Path:
    (path,) = folder.glob(pattern)
    return path


def crashed(folder: Path, name: str) -> Path:
    """The run as it stands on disk at this moment, in a folder of its own: what SIGKILL would leave."""
    return Path(shutil.copytree(folder, folder.with_name(name)))


# I01

FILES = ["journal/*.jnl", "segments/*.seg", "annotations/*.ann"]


@report("I01")
@pytest.mark.parametrize("pattern", FILES)
@pytest.mark.parametrize("room", [0, 1, 30, 100])
def test_a_write_that_fails_halfway_is_taken_back_and_done_again(
    given: dict[str, Any], pattern: str, room: int, tmp_path: Path
) -> None:
    assert given["file"].count("\n") == 1, "one whole record, half a second one, then the second one again"
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        running, whole = grown("running"), attempt("second", 1.0)
        writer.begin(running)
        writer.seal(attempt("first", 1.0))
        writer.annotate([note(1)])
        add_turn(running, "one more", [8, 9])
        steps = {FILES[0]: lambda: writer.turn(running), FILES[1]: lambda: writer.seal(whole)}
        step = steps.get(pattern, lambda: writer.annotate([note(2)]))
        path = only(run, pattern)
        size, before = path.stat().st_size, bits(running)
        with disk_full(path, room), pytest.raises(StoreError, match="nothing that was stored before is lost"):
            step()
        assert path.stat().st_size == size
        assert bits(running) == before
        step()
        again = crashed(run, "again")
    reader = RunReader(again, strict=True)
    assert reader.rollouts() == (["first", "second"] if pattern == FILES[1] else ["first"])
    assert len(reader.annotations()) == (2 if pattern == FILES[2] else 1)
    with RunWriter.open(again) as writer:
        assert writer.recovery.clean
        (recovered,) = writer.recover()
        assert len(recovered.turns()) == (3 if pattern == FILES[0] else 2)


@pytest.mark.parametrize("share", [0.02, 0.1, 0.3, 0.6, 0.95])
def test_half_a_record_with_the_record_behind_it_loses_nothing_before(share: float, tmp_path: Path) -> None:
    """The damaged file of the report, as another tool may have left it."""
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(attempt("first", 1.0))
        path = only(run, "segments/*.seg")
        start = path.stat().st_size
        writer.seal(attempt("second", 1.0))
        data = path.read_bytes()
        copy = crashed(run, "copy")
    half = start + int((len(data) - start) * share)
    broken = copy / "segments" / path.name
    broken.write_bytes(data[:half] + data[start:])

    reader = RunReader(copy)
    assert [trace.id for trace in reader.traces()] == ["first"]
    if "second" in reader:
        with pytest.raises(StoreError, match=f"{path.name} at byte {start}"):
            reader.get("second")
    assert min(damage.offset for damage in reader.report.damages) == start
    with pytest.raises(StoreError, match="damaged"):
        list(RunReader(copy, strict=True).traces())
    with RunWriter.open(copy) as writer:
        assert not writer.recovery.clean
        writer.seal(attempt("third", 1.0))
    reader = RunReader(copy)
    assert [trace.id for trace in reader.traces()] == ["first", "third"]
    assert min(damage.offset for damage in reader.report.damages) == start, "opening to write hid nothing"


def test_a_table_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    """Files of lines and whole files: an export, the marker of a run."""
    sink, out = MemorySink(), tmp_path / "out.jsonl"
    sink.seal(attempt("r0", 1.0, ids=range(3000)))
    export(sink, "jsonl", out)
    old = out.read_bytes()
    RunWriter.create(tmp_path / "run").close()
    marker = (tmp_path / "run" / "run.json").read_bytes()
    empty = tmp_path / "empty"
    empty.touch()
    with disk_full(empty, 100):
        with pytest.raises(StoreError, match="cannot write"):
            export(sink, "jsonl", out, overwrite=True)
        with pytest.raises(StoreError, match="cannot write"):
            export(sink, "jsonl", tmp_path / "new.jsonl")
        with pytest.raises(StoreError, match="cannot be written"):
            write_manifest(tmp_path / "run", Manifest(created=0.0, rollbook="x", config={"long": "x" * 1000}))
    assert out.read_bytes() == old
    assert (tmp_path / "run" / "run.json").read_bytes() == marker
    assert sorted(path.name for path in tmp_path.iterdir()) == ["empty", "out.jsonl", "out.jsonl.report.json", "run"]
    export(sink, "jsonl", tmp_path / "new.jsonl")
    assert (tmp_path / "new.jsonl").read_bytes() == old


# I02


@report("I02")
@pytest.mark.parametrize("pattern", FILES)
def test_opening_to_write_mends_the_tail_first(given: dict[str, Any], pattern: str, tmp_path: Path) -> None:
    garbage = bytes.fromhex(given["file_hex_tail"])
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.begin(grown("running"))
        writer.seal(attempt("r0", 1.0))
        writer.annotate([note(0)])
        folder = crashed(run, "crash")
    for round_ in range(1, 4):  # each crash leaves a broken tail, and each opening mends it before it writes on
        newest = max(folder.glob(pattern), key=lambda each: each.name)
        newest.write_bytes(newest.read_bytes() + garbage)
        for metadata in given["metadata_exists"]:
            if not metadata:
                refuse_without_marker(folder)
        with RunWriter.open(folder) as writer:
            (recovered,) = writer.recover()
            assert len(recovered.turns()) == 2
            writer.seal(attempt(f"r{round_}", 1.0))
            writer.annotate([note(round_)])
            folder = crashed(folder, f"crash-{round_}")
    reader = RunReader(folder, strict=True)
    assert [trace.id for trace in reader.traces()] == ["r0", "r1", "r2", "r3"]
    assert len(reader.annotations()) == 4


def refuse_without_marker(folder: Path) -> None:
    """Without its marker a folder is not a run, and no byte of it is touched; putting it back is enough."""
    marker, kept = folder / "run.json", {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    marker.unlink()
    for refuse in (RunWriter.open, RunWriter.create):
        with pytest.raises(StoreError, match="not a Rollbook run"):
            refuse(folder)
    marker.write_bytes(kept[marker])
    assert {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()} == kept


def test_a_whole_last_record_is_kept_and_any_part_of_one_is_cut(tmp_path: Path) -> None:
    """The record that a file ends in needs no terminator; one byte less and it goes, said with its bytes."""
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(attempt("r0", 1.0))
        path = only(run, "segments/*.seg")
        start = path.stat().st_size
        writer.seal(attempt("r1", 1.0))
        data = path.read_bytes()
        base = crashed(run, "base")
    for place, end in enumerate([start, start + 1, start + 27, start + 29, len(data) - 1, len(data)]):
        folder = crashed(base, f"cut-{place}")
        (folder / "segments" / path.name).write_bytes(data[:end])
        with RunWriter.open(folder) as writer:
            cut = 0 if end == len(data) else end - start
            assert writer.recovery.bytes_cut == cut
            assert writer.sealed == ({"r0", "r1"} if end == len(data) else {"r0"})


def test_a_crash_before_the_marker_was_written_leaves_an_empty_folder(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.tmp").write_bytes(bytes.fromhex(REPORTS["I02"]["input"]["file_hex_tail"]))
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(attempt("r0", 1.0))
    assert RunReader(tmp_path / "run", strict=True).rollouts() == ["r0"]


@pytest.mark.parametrize("missing", ["segments", "journal", "annotations", "lock"])
def test_a_crash_between_the_marker_and_the_rest_is_mended(missing: str, tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    lost = tmp_path / "run" / missing
    lost.unlink() if missing == "lock" else lost.rmdir()
    with RunWriter.open(tmp_path / "run") as writer:
        writer.begin(grown("running"))
        writer.seal(attempt("r0", 1.0))
        writer.annotate([note(0)])
    reader = RunReader(tmp_path / "run", strict=True)
    assert (reader.rollouts(), len(reader.annotations())) == (["r0"], 1)


# I13


@report("I13")
@pytest.mark.parametrize("sealed", [False, True])
def test_what_cannot_be_read_is_told_with_its_reason_and_counted(
    given: dict[str, Any], sealed: bool, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        frames: list[bytes] = []
        path, size = None, 0
        for place in range(len(given["lines"])):
            writer.seal(attempt(f"r{place}", 1.0))
            path = path or only(run, "segments/*.seg")
            frames.append(path.read_bytes()[size:])
            size = path.stat().st_size
        copy = crashed(run, "copy")
    assert path is not None
    known, newer, broken = frames
    broken = broken[:40] + bytes([broken[40] ^ 1]) + broken[41:]
    foreign = framed(77, frames[1])
    (copy / "segments" / path.name).write_bytes(known + with_section(newer, 99) + foreign + broken)
    if sealed:
        RunWriter.open(copy).close()

    reader = RunReader(copy)
    assert [trace.id for trace in reader.traces()] == ["r0", "r1"]
    reasons = sorted(damage.reason for damage in reader.report.damages)
    assert reasons == [DamageReason.FRAME, DamageReason.UNKNOWN, DamageReason.UNKNOWN]
    assert "77" in str(reader.report)
    assert "99" in str(reader.report)
    frames_told = sum(
        damage.reason is not DamageReason.UNKNOWN or "frame" in damage.detail for damage in reader.report.damages
    )
    assert len(reader) + frames_told == 4, "every frame that was written is a record or a row of the report"
    with pytest.raises(StoreError, match="damaged"):
        list(RunReader(copy, strict=True).traces())


def test_a_strict_reader_refuses_a_newer_section_also_for_one_trace(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(attempt("r0", 1.0))
        path = only(run, "segments/*.seg")
        start = path.stat().st_size
        writer.seal(attempt("r1", 1.0))
        data = path.read_bytes()
        copy = crashed(run, "copy")
    (copy / "segments" / path.name).write_bytes(data[:start] + with_section(data[start:], 99))
    assert RunReader(copy).get("r1").reward == 1.0
    with pytest.raises(StoreError, match="99"):
        RunReader(copy, strict=True).get("r1")
    assert RunReader(copy, strict=True).get("r0").reward == 1.0


@pytest.mark.parametrize("pattern", ["journal/*.jnl", "annotations/*.ann"])
def test_frames_of_an_unknown_kind_are_told_in_every_file(pattern: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.begin(grown("running"))
        writer.annotate([note(0)])
        path = only(run, pattern)
        start = path.stat().st_size
        trace = grown("other")
        writer.begin(trace)
        writer.annotate([note(1)])
        data = path.read_bytes()
        copy = crashed(run, "copy")
    (copy / path.relative_to(run)).write_bytes(data[:start] + framed(77, data[start:]) + data[start:])
    with RunWriter.open(copy) as writer:
        assert [damage.reason for damage in writer.recovery.damages] == [DamageReason.UNKNOWN]
        assert sorted(trace.id for trace in writer.recover()) == ["other", "running"]
    assert len(RunReader(copy).annotations()) == 2
    if pattern.startswith("annotations"):
        with pytest.raises(StoreError, match="77"):
            RunReader(copy, strict=True).annotations()
