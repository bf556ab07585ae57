"""The report of a run against numbers that were counted by hand, and that absent is not 0."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.rewards import advantages, annotate, dispositions
from rollbook.rollout import Part
from rollbook.run import RunConfig, open_run, report, run
from rollbook.run.report import _covered
from rollbook.run.report_rows import RunReport
from rollbook.trace import Ending, EndingKind, Fate, MemorySink, Reason, TimeSplit, Trace
from tests.run.run_made import BAD_CALL, CALL, loaded, small_trace


def ended(rollout: str, reason: Reason, reward: float | None, *, member: int, wall: float | None = 2.0) -> Trace:
    trace = small_trace(rollout, group="g", member=member)
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    trace.update(times=None if wall is None else TimeSplit(wall=wall, engine=wall), finished=None)
    return trace


def of(*traces: Trace) -> RunReport:
    sink = MemorySink()
    for trace in traces:
        sink.seal(trace)
    sink.annotate(annotate(dispositions(traces)))
    sink.annotate(advantages(traces).annotations())
    return report(sink)


def test_the_worked_example_of_eight() -> None:
    passed = [ended(f"p{n}", Reason.FINAL_ANSWER, 1.0, member=n) for n in range(3)]
    failed = [ended(f"f{n}", Reason.FINAL_ANSWER, 0.0, member=3 + n) for n in range(2)]
    cut = ended("t", Reason.MAX_TURNS, 0.0, member=5)
    lost = [ended(f"l{n}", Reason.SANDBOX_LOST, None, member=6 + n) for n in range(2)]
    found = of(*passed, *failed, cut, *lost)
    assert [(row.kind, row.reason, row.count) for row in found.endings] == [
        (EndingKind.SUBMITTED, Reason.FINAL_ANSWER, 5),
        (EndingKind.TRUNCATED, Reason.MAX_TURNS, 1),
        (EndingKind.ERROR, Reason.SANDBOX_LOST, 2),
    ]
    (group,) = found.groups
    assert (group.scheduled, group.used, group.mean) == (8, 6, 0.5)
    assert [member.reward for member in group.members] == [1, 1, 1, 0, 0, 0, None, None]
    assert [member.advantage for member in group.members] == [0.5] * 3 + [-0.5] * 3 + [None] * 2
    assert sum(row.count for row in found.dispositions) == found.rollouts == 8
    assert {row.fate for row in found.dispositions} == {Fate.USED, Fate.DROPPED}


def test_a_group_that_is_not_closed_has_no_numbers_of_a_closed_one() -> None:
    sink = MemorySink()
    sink.seal(ended("a", Reason.FINAL_ANSWER, 1.0, member=0))
    found = report(sink)
    (group,) = found.groups
    assert (group.scheduled, group.used, group.mean) == (None, None, None)
    assert [(row.fate, row.count) for row in found.dispositions] == [(None, 1)]


def test_time_parts_add_up_and_what_nobody_reported_is_missing() -> None:
    found = of(*(ended(str(n), Reason.FINAL_ANSWER, 1.0, member=n, wall=1.5) for n in range(2)))
    rows = {row.part: row for row in found.time}
    assert (rows["wall"].seconds, rows["wall"].share) == (3.0, 1.0)
    assert sum(rows[part].seconds or 0 for part in Part) == 3.0
    assert (rows["engine_queue"].seconds, rows["engine_queue"].share) == (None, None)
    assert (found.wall, found.tokens_per_second) == (None, None)


def test_without_any_times_nothing_is_said() -> None:
    found = of(ended("a", Reason.FINAL_ANSWER, 1.0, member=0, wall=None))
    assert {(row.seconds, row.share) for row in found.time} == {(None, None)}
    assert report(MemorySink()).groups == ()


def test_tokens_trained_and_lost_account_for_every_sampled_one() -> None:
    used, dropped = ended("a", Reason.FINAL_ANSWER, 1.0, member=0), ended("b", Reason.HARNESS, None, member=1)
    found = of(used, dropped)
    assert found.tokens.trained == used.graph.sampled_count
    assert found.tokens.lost == {"no_vote": dropped.graph.sampled_count}
    assert found.tokens.trained + sum(found.tokens.lost.values()) == found.tokens.sampled


def test_a_stored_run_counts_its_turns_and_calls(tmp_path: Path) -> None:
    config = RunConfig(environment="test-double", tasks=1, group=2)
    policy = loaded(tmp_path / "m", BAD_CALL, CALL, "It is 8.")
    asyncio.run(run(config, tmp_path / "run", policy=policy))
    found = report(open_run(tmp_path / "run"))
    assert (found.rollouts, found.turns, found.tool_calls) == (2, 6, {"invalid_json": 2, "ok": 2})
    assert (found.tokens.prompt, found.tokens.cached) == (None, None)
    assert found.tokens.sampled == found.tokens.trained > 0
    assert found.wall is not None
    assert found.tokens_per_second == pytest.approx(found.tokens.sampled / found.wall)
    assert [member.reward for member in found.groups[0].members] == [1.0, 1.0]


SPANS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 10)).map(lambda pair: (pair[0], pair[0] + pair[1])))


@settings(deadline=None)
@given(SPANS)
def test_covered_seconds_are_those_of_the_union(spans: list[tuple[int, int]]) -> None:
    assert _covered(spans) == len({second for start, stop in spans for second in range(start, stop)})
