"""The journal: generations rotate and go, and a turn costs what it adds."""

from __future__ import annotations

import itertools
from pathlib import Path

import msgspec
import pytest

from rollbook.errors import StoreError
from rollbook.store import RunReader, RunWriter, StoreOptions
from rollbook.store.journal import KEPT_GENERATIONS
from rollbook.trace import Mark
from tests.store.made import add_turn, content, finish, new_trace
from tests.store.runs import abandon


def generations(run: Path) -> list[str]:
    return sorted(path.name for path in (run / "journal").iterdir())


def test_generations_go_when_no_running_rollout_needs_them(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run, options=StoreOptions(journal_bytes=2_000), writer="w") as writer:
        slow = new_trace("slow", 1)
        writer.begin(slow)
        for number in range(20):
            quick = new_trace(f"quick{number}", 1)
            writer.begin(quick)
            add_turn(quick, 1)
            writer.turn(quick)
            writer.seal(finish(quick))
        assert generations(run)[0] == "w-000001.jnl"
        assert len(generations(run)) == 2
        assert int(generations(run)[1][2:8]) > 5
        writer.seal(finish(slow))
        assert len(generations(run)) == 1
    assert generations(run) == []


def test_a_slow_rollout_does_not_hold_old_generations(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = RunWriter.create(run, options=StoreOptions(journal_bytes=2_000), writer="w")
    slow = new_trace("slow", 1)
    writer.begin(slow)
    for number in range(40):
        add_turn(slow, 1)
        writer.turn(slow)
        for each in range(6):
            quick = new_trace(f"quick{number}-{each}", 1)
            writer.begin(quick)
            add_turn(quick, 1)
            writer.turn(quick)
            writer.seal(finish(quick))
        held = sum(map(len, content(slow))) * 2 // 2_000
        assert len(generations(run)) <= KEPT_GENERATIONS + 4 * held + 8
    assert int(generations(run)[0][2:8]) > 40
    slow.graph.mark(1, Mark.DEMOTED)
    writer.turn(slow)
    abandon(writer)
    with RunWriter.open(run) as writer:
        assert [content(found) for found in writer.recover()] == [content(slow)]
        assert writer.recovery.clean


@pytest.mark.parametrize("further", [0, 1])
def test_a_head_that_was_completed_while_it_ran_is_whole_again(tmp_path: Path, further: int) -> None:
    run = tmp_path / "run"
    writer = RunWriter.create(run, writer="w")
    trace = new_trace("a", 1)
    writer.begin(trace)
    trace.head = msgspec.structs.replace(trace.head, tools_rendered=True)
    writer.turn(trace)
    for _ in range(further):
        add_turn(trace, 1)
        writer.turn(trace)
    abandon(writer)
    with RunWriter.open(run) as writer:
        assert [found.head for found in writer.recover()] == [trace.head]
        writer.seal_interrupted()
    assert RunReader(run).get("a").head == trace.head


def test_a_damaged_second_beginning_leaves_the_first(tmp_path: Path) -> None:
    """Another rollout keeps the old generations, so what stood before the second beginning is still there."""
    run = tmp_path / "run"
    writer = RunWriter.create(run, options=StoreOptions(journal_bytes=2_000), writer="w")
    silent, slow = new_trace("silent", 1), new_trace("slow", 1)
    writer.begin(silent)
    writer.begin(slow)
    for number in range(40):
        quick = new_trace(f"quick{number}", 1)
        writer.begin(quick)
        add_turn(quick, 1)
        writer.turn(quick)
        writer.seal(finish(quick))
    first = content(slow)
    add_turn(slow, 1)
    writer.turn(slow)
    abandon(writer)
    newest = run / "journal" / generations(run)[-1]
    assert len(generations(run)) == 2
    intact = newest.read_bytes()
    for data, expected in ((intact[:-10] + b"?" + intact[-9:], first), (intact, content(slow))):
        newest.write_bytes(data)
        writer = RunWriter.open(run)
        assert {trace.id: content(trace) for trace in writer.recover()} == {"silent": content(silent), "slow": expected}
        assert writer.recovery.clean is (data == intact)
        abandon(writer)


def test_numbers_are_never_used_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    for _ in range(3):
        writer = RunWriter.create(run, writer="w") if not run.exists() else RunWriter.open(run, writer="w")
        writer.begin(new_trace(f"r{len(generations(run))}"))
        abandon(writer)
    assert generations(run) == ["w-000001.jnl", "w-000002.jnl", "w-000003.jnl"]
    with RunWriter.open(run) as writer:
        assert sorted(writer.recovery.in_flight) == ["r0", "r1", "r2"]


def test_a_turn_writes_what_it_added(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run, writer="w") as writer:
        trace = new_trace("r", 1)
        writer.begin(trace)
        sizes = [(run / "journal" / "w-000001.jnl").stat().st_size]
        for _ in range(60):
            add_turn(trace, 1)
            writer.turn(trace)
            sizes.append((run / "journal" / "w-000001.jnl").stat().st_size)
        writer.turn(trace)
        assert (run / "journal" / "w-000001.jnl").stat().st_size == sizes[-1]
        steps = [after - before for before, after in itertools.pairwise(sizes)]
        assert max(steps[40:]) < 1.2 * max(steps[:10])


def test_a_rollout_spread_over_generations_comes_back(tmp_path: Path) -> None:
    run = tmp_path / "run"
    writer = RunWriter.create(run, options=StoreOptions(journal_bytes=1_500))
    trace = new_trace("r", 1)
    writer.begin(trace)
    for _ in range(8):
        add_turn(trace, 1)
        writer.turn(trace)
    abandon(writer)
    assert len(generations(run)) > 3
    with RunWriter.open(run) as writer:
        assert [content(found) for found in writer.recover()] == [content(trace)]
        writer.seal_interrupted()
        assert generations(run) == []


def test_turns_before_the_beginning_are_refused(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer, pytest.raises(StoreError, match="not begun"):
        writer.turn(new_trace("r"))
