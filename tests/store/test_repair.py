"""Repair: files cut at every byte, bits flipped anywhere. Nothing acknowledged before the cut is lost, and wrong data
never comes back silently."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import StoreError
from rollbook.store import DamageReason, RunReader, RunWriter, StoreOptions
from rollbook.trace import Annotation
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.wire import decode_trace, encode_head
from tests.store.made import content, finish, new_trace, whole_trace
from tests.store.runs import Ledger, abandon

Contents = dict[str, tuple[bytes, ...]]
ClosedRun = tuple[Path, Contents, Contents]
STEPS = [("begin", 0), ("turn", 0), ("begin", 1), ("turn", 1), ("seal", 0), ("turn", 1)]


def journal_of(run: Path) -> Path:
    (path,) = (run / "journal").iterdir()
    return path


def segment_of(run: Path) -> Path:
    (path,) = (run / "segments").iterdir()
    return path


def test_journal_cut_at_every_byte(memory_path: Path) -> None:
    run, ends, states = journal_with_states(memory_path)
    path = journal_of(run)
    data = path.read_bytes()
    for size in range(len(data)):
        place(run, path, data[:size])
        known = max(index for index, end in enumerate(ends) if end <= size)
        with RunWriter.open(run, writer="next") as writer:
            assert {trace.id: content(trace) for trace in writer.recover()} == states[known]
            whole = ends[known] if known else (header_end(data) if size >= header_end(data) else 0)
            assert writer.recovery.bytes_cut == size - whole
            if size % 16 == 0:
                assert set(writer.seal_interrupted()) == states[known].keys()
        if size % 16 == 0:
            assert set(RunReader(run, strict=True).rollouts()) == states[known].keys()


def journal_with_states(tmp_path: Path) -> tuple[Path, list[int], list[Contents]]:
    """A run that only has a journal; its size after each step, and what was acknowledged then."""
    run, ledger = tmp_path / "base", Ledger()
    writer = RunWriter.create(run, writer="w")
    ends: list[int] = [0]
    states: list[Contents] = [{}]
    for step in [("begin", 1), ("begin", 2), ("turn", 1)]:
        ledger.step(writer, step)
        ends.append(journal_of(run).stat().st_size)
        states.append(dict(ledger.stored))
    abandon(writer)
    return run, ends, states


def place(run: Path, path: Path, data: bytes) -> None:
    """Leave this one file in the run, with these bytes."""
    for each in run.glob("*/*"):
        each.unlink()
    path.write_bytes(data)


def header_end(data: bytes) -> int:
    return 28 + int.from_bytes(data[8:12], "little") + int.from_bytes(data[12:20], "little")


def copy_of(base: Path, target: Path) -> Path:
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(base, target)
    return target


@pytest.mark.parametrize("closed", [True, False])
def test_segment_cut_at_every_byte(memory_path: Path, closed: bool) -> None:
    run = memory_path / "run"
    traces = [whole_trace("r1", 1, turns=1, tokens=3), finish(new_trace("r2", 2))]
    writer = RunWriter.create(run, writer="w")
    ends: list[int] = []
    for trace in traces:
        writer.seal(trace)
        ends.append(segment_of(run).stat().st_size)
    if closed:
        writer.close()
    else:
        abandon(writer)
    path = segment_of(run)
    data = path.read_bytes()
    for size in range(len(data)):
        place(run, path, data[:size])
        there = [content(trace) for trace, end in zip(traces, ends, strict=True) if end <= size]
        last = ends[len(there) - 1] if there else (header_end(data) if size >= header_end(data) else 0)
        live = RunReader(run)
        assert len(live) == len(there)
        assert sum(damage.bytes for damage in live.report.damages) == size - last
        with RunWriter.open(run, writer="next") as writer:
            assert len(writer.sealed) == len(there)
            assert writer.recovery.bytes_cut == size - last
        if size % 16 == 0:
            assert [content(trace) for trace in RunReader(run, strict=True).traces()] == there


def test_a_trace_cut_in_the_segment_comes_back_from_the_journal(tmp_path: Path) -> None:
    run, ledger = tmp_path / "run", Ledger()
    writer = RunWriter.create(run, writer="w")
    for step in STEPS:
        ledger.step(writer, step)
    abandon(writer)
    path = segment_of(run)
    path.write_bytes(path.read_bytes()[:-7])
    with RunWriter.open(run, writer="next") as writer:
        assert set(writer.recovery.in_flight) == {"r0", "r1"}
        assert set(writer.seal_interrupted()) == {"r0", "r1"}
    found = RunReader(run, strict=True).get("r0")
    assert content(found)[:4] == ledger.sealed["r0"][:4]
    assert found.ending == Ending(Reason.INTERRUPTED, "the process that ran it died")


def test_a_damaged_trace_in_an_unsealed_segment_comes_back_from_the_journal(tmp_path: Path) -> None:
    run, ledger = tmp_path / "run", Ledger()
    writer = RunWriter.create(run, writer="w")
    for step in STEPS:
        ledger.step(writer, step)
    abandon(writer)
    path = segment_of(run)
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data)
    with RunWriter.open(run, writer="next") as writer:
        assert [damage.reason for damage in writer.recovery.damages] == [DamageReason.SECTION]
        assert "r0" in writer.seal_interrupted()
    reader = RunReader(run)
    assert content(reader.get("r0"))[:4] == ledger.sealed["r0"][:4]
    assert sorted(row.rollout for row in reader.summaries()) == ["r0", "r1"]


@pytest.fixture(scope="module")
def closed_run(tmp_path_factory: pytest.TempPathFactory) -> ClosedRun:
    """Three sealed traces, annotations, and two rollouts in flight."""
    run, ledger = tmp_path_factory.mktemp("flip") / "base", Ledger()
    writer = RunWriter.create(run, writer="w", options=StoreOptions(segment_bytes=3_000))
    for step in [*STEPS, ("begin", 2), ("seal", 2), ("begin", 3), ("seal", 3)]:
        ledger.step(writer, step)
    writer.annotate([Annotation(producer="p", name="x", rollout="r0", value="yes")])
    writer.annotate([Annotation(producer="p", name="y", rollout="r0", value="no")])
    ledger.step(writer, ("begin", 9))
    writer.close()
    return run, ledger.sealed, ledger.stored


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_flipped_bit_is_never_silent(closed_run: ClosedRun, data: st.DataObject) -> None:
    base, sealed, flight = closed_run
    files = sorted(path.relative_to(base) for path in base.glob("*/*"))
    name = data.draw(st.sampled_from(files))
    bit = data.draw(st.integers(0, (base / name).stat().st_size * 8 - 1))
    with tempfile.TemporaryDirectory() as folder:
        run = copy_of(base, Path(folder) / "run")
        raw = bytearray((run / name).read_bytes())
        raw[bit // 8] ^= 1 << bit % 8
        (run / name).write_bytes(raw)
        check_reading(run, sealed)
        check_recovering(run, flight)


def check_reading(run: Path, sealed: Contents) -> None:
    reader = RunReader(run)
    found = {trace.id: content(trace) for trace in reader.traces()}
    rows = [row.rollout for row in reader.summaries()]
    notes = [note.value for note in reader.annotations()]
    assert found.items() <= sealed.items()
    if found != sealed or set(rows) != set(sealed) or notes != ["yes", "no"]:
        assert not reader.report.clean
    for rollout, expected in sealed.items():
        try:
            assert content(reader.get(rollout)) == expected
        except (StoreError, KeyError):
            assert not reader.report.clean


def check_recovering(run: Path, flight: Contents) -> None:
    expected = dict(flight)
    found, report_clean = recovered(run)
    if found != expected:
        assert not report_clean
        for rollout, stored in found.items():
            assert stored[0] in (expected[rollout][0], at_begin(expected[rollout][0]))
            assert len(stored[1]) <= len(expected[rollout][1])


def at_begin(head: bytes) -> bytes:
    """The head as the rollout began: a turn that is lost, and told as lost, takes what it said of the head with it."""
    trace = decode_trace(head, [], None)
    trace.head = msgspec.structs.replace(trace.head, tools_rendered=None)
    return encode_head(trace)


def recovered(run: Path) -> tuple[Contents, bool]:
    with RunWriter.open(run, writer="next") as writer:
        return {trace.id: content(trace) for trace in writer.recover()}, writer.recovery.clean


def test_a_damaged_turn_ends_the_recovery_of_its_rollout_alone(tmp_path: Path) -> None:
    run, ledger = tmp_path / "run", Ledger()
    writer = RunWriter.create(run, writer="w")
    ends = []
    for step in [("begin", 0), ("begin", 1), ("turn", 0), ("turn", 0), ("turn", 1)]:
        ledger.step(writer, step)
        ends.append(journal_of(run).stat().st_size)
    abandon(writer)
    raw = bytearray(journal_of(run).read_bytes())
    raw[ends[2] - 3] ^= 8
    journal_of(run).write_bytes(raw)
    with RunWriter.open(run, writer="next") as writer:
        found = {trace.id: trace for trace in writer.recover()}
        assert content(found["r1"]) == ledger.stored["r1"]
        assert len(found["r0"].graph) == 1
        assert {damage.reason for damage in writer.recovery.damages} == {DamageReason.GAP}
        assert len(writer.recovery.damages) == 2
        writer.seal_interrupted()
    assert [path.suffix for path in (run / "journal").iterdir()] == [".damaged"]
    with RunWriter.open(run, writer="third") as writer:
        assert writer.recovery.clean


def test_a_damaged_beginning_is_told_and_blocks_nothing(tmp_path: Path) -> None:
    run, ledger = tmp_path / "run", Ledger()
    writer = RunWriter.create(run, writer="w")
    ledger.step(writer, ("begin", 0))
    first_end = journal_of(run).stat().st_size
    ledger.step(writer, ("begin", 1))
    abandon(writer)
    raw = bytearray(journal_of(run).read_bytes())
    raw[first_end - 3] ^= 8
    journal_of(run).write_bytes(raw)
    with RunWriter.open(run, writer="next") as writer:
        assert writer.seal_interrupted() == ["r1"]
        assert not writer.recovery.clean


def test_blank_bytes_at_the_end_are_cut(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = RunWriter.create(run, writer="w")
    writer.seal(whole_trace("r"))
    abandon(writer)
    with segment_of(run).open("ab") as file:
        file.write(bytes(5000))
    with RunWriter.open(run) as writer:
        assert writer.recovery.bytes_cut == 5000
        assert bytes(1000) not in segment_of(run).read_bytes()
    assert RunReader(run, strict=True).rollouts() == ["r"]


def test_garbage_is_reported_and_kept(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = RunWriter.create(run, writer="w")
    writer.seal(whole_trace("r"))
    abandon(writer)
    with segment_of(run).open("ab") as file:
        file.write(b"x" * 5000)
    size = segment_of(run).stat().st_size
    with RunWriter.open(run) as writer:
        (damage,) = writer.recovery.damages
        assert (damage.reason, damage.bytes, damage.cut) == (DamageReason.LOST, 5000, False)
    assert segment_of(run).stat().st_size == size
    reader = RunReader(run)
    assert reader.rollouts() == ["r"]
    assert not reader.report.clean
    with pytest.raises(StoreError, match="lost"):
        RunReader(run, strict=True).rollouts()


def test_a_file_of_another_tool_is_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunWriter.create(run).close()
    stray = run / "segments" / "stray-000009.seg"
    stray.write_bytes(b"PK\x03\x04 a zip file")
    with RunWriter.open(run) as writer:
        assert [damage.reason for damage in writer.recovery.damages] == [DamageReason.FOREIGN]
        writer.seal(whole_trace("r"))
    assert stray.read_bytes() == b"PK\x03\x04 a zip file"
    assert RunReader(run).rollouts() == ["r"]
