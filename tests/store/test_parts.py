"""Several writers in one run: each has its part, a dead one harms no other, and the owner takes its part over."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings

from rollbook.errors import RunLocked, StoreError
from rollbook.store import DamageReason, RunReader, RunWriter, read_manifest, redact_trace
from rollbook.trace import Annotation, Ending, Reason, Trace, samples
from tests.slow.kill_storm import ROOT
from tests.store.made import add_turn, content, finish, new_trace, whole_trace
from tests.store.runs import SMALL, Ledger, Step, abandon, step_lists
from tests.store.test_format import load_script


def test_all_parts_are_read_as_one_run_in_one_order(tmp_path: Path) -> None:
    run = tmp_path / "run"
    traces = [whole_trace(f"r{seed}", seed) for seed in range(6)]
    with RunWriter.create(run) as owner, RunWriter.join(run, "b") as b, RunWriter.join(run, "a") as a:
        reader = RunReader(run, strict=True)
        for writer, trace in zip((owner, b, a, owner, b, a), traces, strict=True):
            writer.seal(trace)
            assert trace.id in reader
            assert content(reader.get(trace.id)) == content(trace)
    order = ["r2", "r5", "r1", "r4", "r0", "r3"]
    assert reader.rollouts() != []
    for source in (reader, RunReader(run, strict=True)):
        assert [row.rollout for row in source.summaries()] == [trace.id for trace in source.traces()] == order
    assert sorted(path.name for path in (run / "writers").iterdir()) == ["a", "b"]
    assert sorted(path.name for path in (run / "writers" / "a").iterdir()) == ["journal", "lock", "segments"]
    assert not list((run / "writers").glob("*/journal/*"))


@settings(max_examples=25, deadline=None)
@given(step_lists(), step_lists())
def test_a_part_of_a_dead_worker_is_taken_over_while_others_write(mine: list[Step], others: list[Step]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        with RunWriter.create(run, options=SMALL) as owner:
            dead, alive = Ledger(), Ledger()
            first = RunWriter.join(run, "w0", options=SMALL)
            with RunWriter.join(run, "w1", options=SMALL) as second:
                for step in mine:
                    dead.step(first, step)
                abandon(first)
                half = len(others) // 2
                for action, number in others[:half]:
                    alive.step(second, (action, number + 100))
                assert set(owner.recover_part("w0")) == set(dead.stored)
                assert owner.recover_part("w0") == []
                for action, number in others[half:]:
                    alive.step(second, (action, number + 100))
            assert owner.recovery.clean
        reader = RunReader(run, strict=True)
        found = {trace.id: trace for trace in reader.traces()}
        assert found.keys() == dead.sealed.keys() | dead.stored.keys() | alive.sealed.keys()
        assert {name: content(found[name]) for name in dead.sealed} == dead.sealed
        assert {name: content(found[name])[:4] for name in dead.stored} == {n: c[:4] for n, c in dead.stored.items()}
        assert {found[name].ending for name in dead.stored} <= {
            Ending(Reason.INTERRUPTED, "the process that ran it died")
        }
        assert not list((run / "writers" / "w0" / "journal").iterdir())


def test_a_living_worker_keeps_its_part(tmp_path: Path) -> None:
    run = tmp_path / "run"
    owner = RunWriter.create(run)
    with RunWriter.join(run, "w0"):
        with pytest.raises(RunLocked, match="writers/w0 is being written"):
            owner.recover_part("w0")
        with pytest.raises(RunLocked, match="writers/w0 is being written"):
            RunWriter.join(run, "w0")
        owner.close()
        with pytest.raises(RunLocked, match="writers/w0 is being written"):
            RunWriter.open(run)
    RunWriter.open(run).close()


def test_opening_a_run_finds_what_all_parts_left(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writers = [RunWriter.create(run), RunWriter.join(run, "w0"), RunWriter.join(run, "w1")]
    for seed, writer in enumerate(writers):
        writer.seal(whole_trace(f"done{seed}", seed))
        writer.begin(new_trace(f"running{seed}", seed))
    for writer in writers:
        abandon(writer)
    (torn,) = (run / "writers" / "w1" / "segments").iterdir()
    torn.write_bytes(torn.read_bytes() + b"RBF1")
    ids = {f"running{seed}" for seed in range(3)}
    with RunWriter.open(run) as owner:
        assert set(owner.recovery.in_flight) == ids
        assert [damage.file for damage in owner.recovery.damages] == [torn.relative_to(run).as_posix()]
        assert owner.sealed == {"done0", "done1", "done2"}
        with pytest.raises(StoreError, match="sealed in this run already"):
            owner.begin(new_trace("done2"))
        with pytest.raises(RunLocked):
            RunWriter.join(run, "w1")
        assert {trace.id for trace in owner.recover()} == ids
        assert set(owner.seal_interrupted()) == ids
        with RunWriter.join(run, "w1") as again:
            assert again.sealed == {"done2"}
            with pytest.raises(StoreError, match="sealed in this run already"):
                again.begin(new_trace("done2"))
    assert len(RunReader(run, strict=True)) == 6


def test_a_worker_that_joins_again_finds_its_own_part(tmp_path: Path) -> None:
    run = tmp_path / "run"
    owner = RunWriter.create(run)
    first = RunWriter.join(run, "w0")
    first.begin(new_trace("r"))
    abandon(first)
    with RunWriter.join(run, "w0") as again:
        assert again.recovery.in_flight == ["r"]
        assert again.seal_interrupted() == ["r"]
    assert owner.recover_part("w0") == owner.recover_part("never-there") == []
    owner.close()
    assert RunReader(run, strict=True).rollouts() == ["r"]


def test_what_is_the_owners_is_refused_to_a_part(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run), RunWriter.join(run, "w0") as worker:
        assert (worker.part, worker.folder) == ("w0", run)
        with pytest.raises(StoreError, match="owner annotates"):
            worker.annotate([Annotation(producer="p", name="n", rollout="r", value=1)])
        with pytest.raises(StoreError, match="owner can"):
            worker.recover_part("w1")
        assert worker.seal_interrupted() == []
    for name in ("", ".", "..", "a/b", "ż", "x" * 101):
        with pytest.raises(StoreError, match="cannot name a writer"):
            RunWriter.join(run, name)


def test_a_run_of_one_writer_becomes_one_of_many_when_it_is_opened(tmp_path: Path) -> None:
    """An older reader would pass over the parts, so it must refuse the run."""
    run = tmp_path / "run"
    RunWriter.create(run, {"n": 4}).close()
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    with pytest.raises(StoreError, match="open it for writing once"):
        RunWriter.join(run, "w0")
    assert RunReader(run).manifest.version == 1
    with RunWriter.open(run) as owner:
        assert owner.manifest == read_manifest(run)
        assert (owner.manifest.version, owner.manifest.config) == (2, {"n": 4})
        RunWriter.join(run, "w0").close()


def test_the_recovered_record_counts_before_the_damaged_one_of_the_part(tmp_path: Path) -> None:
    run = tmp_path / "run"
    owner, worker = RunWriter.create(run), RunWriter.join(run, "w0")
    for number in range(3):
        worker.seal(whole_trace(f"before{number}", number))
    trace = whole_trace("r", 1)
    worker.begin(trace)
    worker.seal(trace)
    abandon(worker)
    (path,) = (run / "writers" / "w0" / "segments").iterdir()
    data = bytearray(path.read_bytes())
    data[-20] ^= 1
    path.write_bytes(data + b"x" * 100)
    assert owner.recover_part("w0") == ["r"]
    assert DamageReason.LOST in {damage.reason for damage in owner.recovery.damages}
    owner.close()
    reader = RunReader(run)
    assert content(reader.get("r"))[:4] == content(trace)[:4]
    assert [row.rollout for row in reader.summaries()].count("r") == 1


def test_redaction_finds_a_trace_in_its_part(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run), RunWriter.join(run, "w0") as worker:
        worker.seal(whole_trace("r", 1))
    redact_trace(run, "r", 1)
    assert [str(mark) for mark in RunReader(run, strict=True).get("r").graph.marks.values()] == ["redacted"]


def test_the_reader_that_stands_alone_takes_a_run_with_parts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where a rollout stands in two files it takes the one that `RunReader` takes, whatever the run is called, and it
    leaves alone what is no part."""
    run = tmp_path / "writers" / "run"
    with RunWriter.create(run) as owner, RunWriter.join(run, "z0") as late, RunWriter.join(run, "a0") as early:
        for turns, writer in enumerate((early, late, owner), start=1):
            writer.seal(whole_trace(f"own-{turns}", turns))
            writer.seal(whole_trace("in-all", 1, turns=turns))
        for turns, writer in enumerate((early, late), start=1):
            writer.seal(whole_trace("in-parts", 1, turns=turns))
    with RunWriter.create(tmp_path / "stray") as writer:
        writer.seal(whole_trace("stray"))
    for name in (".kept", "my notes", "a0/writers/b", "../copy"):
        shutil.copytree(tmp_path / "stray" / "segments", run / "writers" / name / "segments")
    expected = {trace.id: said(trace) for trace in RunReader(run, strict=True).traces()}
    assert expected.keys() == {"own-1", "own-2", "own-3", "in-all", "in-parts"}
    assert expected["in-all"] == said(whole_trace("in-all", 1, turns=3))
    assert expected["in-parts"] == said(whole_trace("in-parts", 1, turns=2))
    files = [str(path) for place in (run, *(run / "writers" / p for p in ("z0", "a0"))) for path in segments(place)]
    for words in ([str(run)], files, files[::-1]):
        load_script().main(words)
        found: dict[str, list[str]] = {}
        for line in capsys.readouterr().out.splitlines():
            if line[0] != " ":
                found[line.split()[0]] = lines = list[str]()
            else:
                lines.append(line)
        assert found == expected


def segments(place: Path) -> list[Path]:
    return list((place / "segments").iterdir())


def said(trace: Trace) -> list[str]:
    """A line per sample, as the reader that stands alone writes it."""
    return [f"  {len(one.token_ids)} tokens, {one.loss_mask.sum()} trained" for one in samples(trace)]


@pytest.mark.parametrize("change", [{"version": 3}, {"format": "other"}])
def test_the_reader_that_stands_alone_refuses_what_it_may_misread(change: dict[str, object], tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r"))
    path = run / "run.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(SystemExit, match="unknown or newer format"):
        load_script().main([str(run)])


def test_a_killed_worker_loses_nothing_and_disturbs_nobody(tmp_path: Path) -> None:
    """Two processes write; one is killed, and taken over while the other goes on to its end."""
    run = tmp_path / "run"
    with RunWriter.create(run, options=SMALL) as owner:
        victim, other = (
            subprocess.Popen(
                [sys.executable, "-m", "tests.store.test_parts", str(run), name, steps],
                stdout=subprocess.PIPE,
                cwd=ROOT,
                text=True,
            )
            for name, steps in (("victim", "1000000"), ("other", "120"))
        )
        assert victim.stdout is not None
        assert other.stdout is not None
        said = [victim.stdout.readline() for _ in range(60)]
        victim.send_signal(signal.SIGKILL)
        said += victim.stdout.readlines()
        victim.wait()
        victim.stdout.close()
        recovered = owner.recover_part("victim")
        finished = other.stdout.readlines()
        other.stdout.close()
        assert other.wait() == 0
    whole = [line.split() for line in said if line.endswith("\n")]
    sealed = {rollout for word, rollout, _ in whole if word == "sealed"}
    nodes = {rollout: int(count) for word, rollout, count in whole if word == "stored" and rollout not in sealed}
    found = {trace.id: trace for trace in RunReader(run, strict=True).traces()}
    assert sealed <= found.keys()
    assert nodes.keys() <= set(recovered) | found.keys()
    assert all(len(found[rollout].graph) >= count for rollout, count in nodes.items())
    assert {line.split()[1] for line in finished} <= found.keys()


def write_steps(run: str, name: str, steps: int) -> None:
    """A worker: four rollouts in flight, extended in turn; each fifth step seals one. Says what is durable."""
    with RunWriter.join(run, name, options=SMALL) as writer:
        running = []
        for number in range(steps):
            if len(running) < 4:
                running.append(new_trace(f"{name}-{number}", number))
                writer.begin(running[-1])
            trace = running.pop(0)
            add_turn(trace, number, tokens=8)
            writer.turn(trace)
            if number % 5:
                running.append(trace)
                print("stored", trace.id, len(trace.graph), flush=True)  # noqa: T201 - read by the test
            else:
                writer.seal(finish(trace))
                print("sealed", trace.id, len(trace.graph), flush=True)  # noqa: T201 - read by the test
        for trace in running:
            writer.seal(finish(trace))


if __name__ == "__main__":
    write_steps(sys.argv[1], sys.argv[2], int(sys.argv[3]))


def test_what_lies_among_the_parts_and_is_none_is_left_alone(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunWriter.create(run).close()
    for name in ("my notes", ".checkpoints"):
        (run / "writers" / name).mkdir(parents=True)
    with RunWriter.open(run) as writer:
        writer.seal(whole_trace("a"))
    assert not any(list((run / "writers" / name).iterdir()) for name in ("my notes", ".checkpoints"))
    assert "a" in RunReader(run)
