"""The writer: what was acknowledged is there after any death; a rollout is in the run once."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError, StoreError
from rollbook.store import RunReader, RunWriter, StoreOptions, Sync
from rollbook.trace import Annotation, Call, Ending, EndingKind, Finish, Reason, Sampling
from tests.store.made import add_turn, content, finish, new_trace, sample_bits, whole_trace
from tests.store.runs import SMALL, Ledger, Step, abandon, step_lists, write_run


@settings(max_examples=40, deadline=None)
@given(step_lists())
def test_a_dead_writer_loses_nothing(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        ledger = write_run(run, steps)
        with RunWriter.open(run, options=SMALL) as writer:
            assert writer.recovery.clean
            assert {trace.id: content(trace) for trace in writer.recover()} == ledger.stored
            assert set(writer.seal_interrupted()) == set(ledger.stored)
            assert writer.recovery.clean
        check_all_there(run, ledger)
        assert not list((run / "journal").iterdir())


def check_all_there(run: Path, ledger: Ledger) -> None:
    reader = RunReader(run, strict=True)
    found = {trace.id: trace for trace in reader.traces()}
    assert [row.rollout for row in reader.summaries()] == list(found)
    assert found.keys() == ledger.sealed.keys() | ledger.stored.keys()
    for rollout, stored in ledger.sealed.items():
        assert content(found[rollout]) == stored
    for rollout, stored in ledger.stored.items():
        assert content(found[rollout])[:4] == stored[:4]
        assert found[rollout].ending == Ending(Reason.INTERRUPTED, "the process that ran it died")


@settings(max_examples=20, deadline=None)
@given(step_lists(), st.integers(0, 25))
def test_several_deaths(steps: list[Step], cut: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        first = write_run(run, steps[:cut])
        with RunWriter.open(run, options=SMALL) as writer:
            pass  # dies before it seals what was in flight
        writer = RunWriter.open(run, options=SMALL)
        assert set(writer.seal_interrupted()) == set(first.stored)
        late = Ledger()
        for action, number in steps:
            late.step(writer, (action, number + 100))
        abandon(writer)
        check_all_there_after(run, first, late)


def check_all_there_after(run: Path, first: Ledger, late: Ledger) -> None:
    with RunWriter.open(run, options=SMALL) as writer:
        assert set(writer.seal_interrupted()) == set(late.stored)
    both = Ledger(stored=first.stored | late.stored, sealed=first.sealed | late.sealed)
    check_all_there(run, both)


def test_clean_close_leaves_sealed_segments_and_no_journal(tmp_path: Path) -> None:
    ledger = Ledger()
    with RunWriter.create(tmp_path / "run", {"seed": 1}) as writer:
        for step in [("begin", 0), ("turn", 0), ("begin", 1), ("seal", 0), ("seal", 1)]:
            ledger.step(writer, step)
    assert not list((tmp_path / "run" / "journal").iterdir())
    reader = RunReader(tmp_path / "run", strict=True)
    assert reader.manifest.config == {"seed": 1}
    assert {trace.id: content(trace) for trace in reader.traces()} == ledger.sealed


def test_samples_are_bit_identical(tmp_path: Path) -> None:
    traces = [whole_trace(f"r{seed}", seed) for seed in range(9)]
    with RunWriter.create(tmp_path / "run") as writer:
        for trace in traces:
            writer.seal(trace)
    reader = RunReader(tmp_path / "run")
    for trace in traces:
        assert sample_bits(reader.get(trace.id)) == sample_bits(trace)
        assert reader.get(trace.id).sealed


def test_an_id_is_in_a_run_once(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", options=SMALL) as writer:
        writer.begin(new_trace("running"))
        with pytest.raises(StoreError, match="running already"):
            writer.begin(new_trace("running"))
        writer.seal(whole_trace("done"))
        for refused in (writer.begin, writer.seal):
            with pytest.raises(StoreError, match="sealed in this run already"):
                refused(whole_trace("done"))
        with pytest.raises(StoreError, match="was not begun"):
            writer.turn(new_trace("never"))
    with RunWriter.open(tmp_path / "run") as writer:
        assert writer.sealed == {"done"}
        with pytest.raises(StoreError, match="seal_interrupted"):
            writer.begin(new_trace("running"))
        with pytest.raises(StoreError, match="sealed in this run already"):
            writer.begin(new_trace("done"))


def test_a_trace_without_ending_is_refused_and_stays_open(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        trace = new_trace("r")
        writer.begin(trace)
        with pytest.raises(RecordError, match="without an ending"):
            writer.seal(trace)
        assert not trace.sealed
        assert not list((tmp_path / "run" / "segments").iterdir())
        writer.seal(finish(trace))
        assert trace.sealed
    assert len(RunReader(tmp_path / "run")) == 1


def test_the_first_cause_stays_when_it_was_stored(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    trace = new_trace("r", 1)
    writer.begin(trace)
    add_turn(trace, 1)
    trace.end(Ending(Reason.MAX_TURNS))
    writer.turn(trace)
    abandon(writer)
    with RunWriter.open(tmp_path / "run") as writer:
        writer.seal_interrupted()
    found = RunReader(tmp_path / "run").get("r")
    assert found.ending == Ending(Reason.MAX_TURNS)
    assert [note.text for note in found.tail.errors] == ["error/interrupted: the process that ran it died"]
    assert found.reward is None


def test_marks_on_older_nodes_and_notes_are_durable(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    trace = new_trace("r", 1)
    writer.begin(trace)
    add_turn(trace, 1)
    writer.turn(trace)
    trace.graph.mark(1, "demoted")  # type: ignore[arg-type]
    trace.note("tool", "it broke")
    writer.turn(trace)
    abandon(writer)
    with RunWriter.open(tmp_path / "run") as writer:
        (found,) = writer.recover()
    assert content(found) == content(trace)


def test_interrupted_means_error(tmp_path: Path) -> None:
    write_run(tmp_path / "run", [("begin", 0), ("turn", 0)])
    with RunWriter.open(tmp_path / "run") as writer:
        assert writer.recovery.in_flight == ["r0"]
        writer.seal_interrupted("killed")
    (row,) = RunReader(tmp_path / "run").summaries()
    assert (row.kind, row.reason, row.reward) == (EndingKind.ERROR, Reason.INTERRUPTED, None)


@pytest.mark.parametrize("sync", list(Sync))
def test_every_sync_option_writes_the_same(tmp_path: Path, sync: Sync) -> None:
    options = StoreOptions(sync=sync, sync_seconds=0.0, journal_bytes=1000)
    ledger = Ledger()
    with RunWriter.create(tmp_path / "run", options=options) as writer:
        for step in [("begin", 0), ("turn", 0), ("begin", 1), ("turn", 1), ("seal", 0), ("turn", 1), ("seal", 1)]:
            ledger.step(writer, step)
        writer.annotate([Annotation(producer="t", name="x", rollout="r0", value=1)])
    assert {trace.id: content(trace) for trace in RunReader(tmp_path / "run", strict=True).traces()} == ledger.sealed


def test_what_is_not_plain_data_is_refused_whole(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        with pytest.raises(RecordError, match="plain data"):
            writer.begin(new_trace("r", config={"x": object()}))
        writer.begin(new_trace("r"))


def test_a_closed_writer_writes_nothing(tmp_path: Path) -> None:
    writer = RunWriter.create(tmp_path / "run")
    trace = new_trace("r")
    writer.begin(trace)
    writer.close()
    writer.close()
    for refused in (writer.begin, writer.turn, writer.seal):
        with pytest.raises(StoreError, match="is closed"):
            refused(trace)
    RunWriter.open(tmp_path / "run").close()


def test_a_trace_that_does_not_hold_together_is_not_written(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        trace = new_trace("r")
        trace.add_call(Call(node=1, after=0, sampling=Sampling(), finish=Finish.STOP))
        with pytest.raises(RecordError, match="gave node 1"):
            writer.seal(finish(trace))
        assert not trace.sealed
        assert not list((tmp_path / "run" / "segments").iterdir())
