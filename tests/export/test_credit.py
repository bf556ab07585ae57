"""What an export takes of later facts: the newest reward, and advantages of single turns."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from rollbook.export import export
from rollbook.rewards import advantages
from rollbook.run import open_run
from rollbook.run.explain import explain
from rollbook.store import RunWriter
from rollbook.trace import Annotation, Ending, MemorySink, Reason, Role, Trace, TurnReward, facts
from tests.cases.case import add_turn, add_user, attempt, head
from tests.export.test_batch import rows


def two_turns(name: str, given: tuple[float, float], member: int = 0) -> Trace:
    trace = Trace(head(name, member=member))
    add_user(trace, "?", [1, 2, 3])
    first = add_turn(trace, "one", [7, 8])
    add_user(trace, "so", [4], role=Role.TOOL)
    second = add_turn(trace, "two", [9])
    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.score(sum(given), turn_rewards=(TurnReward(first, given[0]), TurnReward(second, given[1])))
    return trace


def credited() -> tuple[list[Trace], list[Annotation]]:
    traces = [two_turns("a", (0.5, 0.25)), two_turns("b", (0.0, 0.25), 1)]
    return traces, advantages(traces, estimator="turn_level").annotations()


def test_each_turn_has_its_own_advantage_in_the_row(tmp_path: Path) -> None:
    traces, notes = credited()
    source = MemorySink()
    for trace in traces:
        source.seal(trace)
    source.annotate(notes)
    export(source, "jsonl", tmp_path / "out")
    first, second = rows(tmp_path / "out")
    # left before each turn: a 0.75, 0.25; b 0.25, 0.25
    assert first["advantage"] == 0.25
    assert np.array(first["advantages"], float)[3:].tolist()[:2] == [0.25, 0.25]
    assert first["advantages"][-1] == 0.0
    assert second["advantages"][-1] == 0.0
    export(source, "jsonl", tmp_path / "mine", advantages={"a": 2.0})
    mine, _ = rows(tmp_path / "mine")
    assert (mine["advantage"], mine["advantages"]) == (2.0, None), "the caller's own is for all turns"


def test_a_later_reward_goes_with_the_row(tmp_path: Path) -> None:
    source = MemorySink()
    source.seal(attempt("a", 1.0))
    later = facts.Reward(total=0.25, parts={"right": 0.25})
    source.annotate(
        [Annotation(producer="score", name="reward", rollout="a", step=1, value=msgspec.to_builtins(later))]
    )
    export(source, "jsonl", tmp_path / "out")
    (row,) = rows(tmp_path / "out")
    assert (row["reward"], row["reward_parts"]) == (0.25, {"right": 0.25})
    none = facts.Reward(total=None)
    source.annotate([Annotation(producer="score", name="reward", rollout="a", step=2, value=msgspec.to_builtins(none))])
    source.seal(attempt("b", 1.0))
    export(source, "jsonl", tmp_path / "again")
    assert [row["rollout"] for row in rows(tmp_path / "again")] == ["b"], "no reward, no vote"


def test_explain_tells_the_turns_and_the_newest_reward(tmp_path: Path) -> None:
    traces, notes = credited()
    with RunWriter.create(tmp_path / "run") as writer:
        for trace in traces:
            writer.begin(trace)
            writer.turn(trace)
            writer.seal(trace)
        writer.annotate(notes)
        value = msgspec.to_builtins(facts.Reward(total=3.0))
        writer.annotate([Annotation(producer="score", name="reward", rollout="b", step=1, value=value)])
    told = explain(open_run(tmp_path / "run"), "a").advantage
    assert told is not None
    assert told.turns == {0: 0.25, 1: 0.0}
    assert [each.reward for each in told.members] == [0.75, 3.0]


def test_a_stored_run_is_exported_with_what_came_later(tmp_path: Path) -> None:
    traces, notes = credited()
    plain = [attempt("c", 1.0, member=2), attempt("d", 1.0, member=3)]
    with RunWriter.create(tmp_path / "run") as writer:
        for trace in [*traces, *plain]:
            writer.begin(trace)
            writer.turn(trace)
            writer.seal(trace)
        writer.annotate(notes)
        value = msgspec.to_builtins(facts.Reward(total=3.0))
        writer.annotate([Annotation(producer="score", name="reward", rollout="c", step=1, value=value)])
    export(open_run(tmp_path / "run"), "jsonl", tmp_path / "out.jsonl")
    found = {row["rollout"]: row for row in rows(tmp_path / "out.jsonl")}
    assert [found[name]["reward"] for name in "acd"] == [0.75, 3.0, 1.0]
    assert found["a"]["advantages"] is not None
    assert found["d"]["advantages"] is None
