"""Runs whose groups are scored as a whole, and runs that a judge scores: here and in worker processes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.audit import audit
from rollbook.envs import Environment
from rollbook.rewards.scorers import Judge
from rollbook.rollout import GroupRules, ResourceLimit, group
from rollbook.run import Access, RunConfig, open_stream, read_resources, report, run
from rollbook.run.policies import judge_loader
from rollbook.run.rescore import rescore
from rollbook.store import RunReader
from rollbook.trace import EdgeLabel, EndingRules, Fate, MemorySink, ScoringStatus, Task, Trace, facts
from tests.run.run_made import loaded, script

RANKED, JUDGED = "tests.run.test_group_scoring:Ranked", "tests.run.test_group_scoring:Judged"


class Ranked(Environment):
    """The members of a group are worth their place in it. `fails`: nobody can say."""

    def __init__(self, fails: bool = False, judge: str | None = None) -> None:
        self.fails = fails
        self.judge = None if judge is None else Judge(policy=judge, rubric="Be strict.")

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"ranked-{seed}-{index}", prompt=f"Say {index}.") for index in range(count)]

    async def score_group(self, traces: Sequence[Trace]) -> Mapping[str, float]:
        if self.fails:
            raise OSError("nobody can say")
        if self.judge is not None:
            return {trace.id: await self.judge(trace) for trace in traces}
        return {trace.id: float(trace.head.member) for trace in traces}


class Judged(Environment):
    """Scored by a judge that each worker loads by its name."""

    def __init__(self, judge: str) -> None:
        self.judge = Judge(policy=judge, rubric="Be strict.")

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"judged-{seed}-{index}", prompt=f"Say {index}.", target="8") for index in range(count)]

    async def score(self, trace: Trace) -> float:
        return await self.judge(trace)


def config(folder: Path, environment: str, **more: Any) -> RunConfig:
    return RunConfig(
        environment=environment, policy=script(folder / "m", "It is 8."), **{"tasks": 2, "group": 3, **more}
    )


def done(folder: Path, asked: RunConfig, **options: Any) -> RunReader:
    asyncio.run(run(asked, folder / "run", **options))
    return RunReader(folder / "run", strict=True)


@pytest.mark.parametrize("workers", [0, 2])
def test_a_group_is_scored_before_its_advantages(tmp_path: Path, workers: int) -> None:
    source = done(tmp_path, config(tmp_path, RANKED), workers=workers)
    notes = source.annotations()
    rewards, advantages, fates = facts.rewards(notes), facts.advantages(notes), facts.dispositions(notes)
    for trace in source.traces():
        assert trace.reward is None, "sealed before it was scored"
        assert rewards[trace.id].total == trace.head.member
        assert advantages[trace.id].advantage == trace.head.member - 1.0
        assert fates[trace.id].fate is Fate.USED
    assert [row.mean for row in report(source).groups] == [1.0, 1.0]


def test_where_it_fails_nobody_votes_and_nothing_is_refilled(tmp_path: Path) -> None:
    rules = GroupRules(refill=2, min_used=1)
    source = done(tmp_path, config(tmp_path, RANKED, options={"fails": True}, groups=rules))
    notes = source.annotations()
    assert len(source) == 6
    assert {each.status for each in facts.rewards(notes).values()} == {ScoringStatus.FAILED}
    assert {(each.fate, each.rule) for each in facts.dispositions(notes).values()} == {(Fate.DROPPED, "scoring failed")}
    assert {each.used for each in facts.advantages(notes).values()} == {0}


def test_enough_votes_close_a_group_that_is_scored_as_a_whole(tmp_path: Path) -> None:
    source = done(tmp_path, config(tmp_path, RANKED, tasks=1, groups=GroupRules(enough=2)), concurrency=1)
    advantages = facts.advantages(source.annotations())
    assert {each.used for each in advantages.values()} == {2}
    assert sorted(each.advantage or 0.0 for each in advantages.values()) == [-0.5, 0.5]


def test_a_stream_hands_out_groups_with_the_rewards_of_the_whole(tmp_path: Path) -> None:
    async def go() -> list[list[float | None]]:
        async with open_stream(config(tmp_path, RANKED), tmp_path / "run") as stream:
            return [[trace.reward for trace in group.traces()] async for group in stream]

    assert asyncio.run(go()) == [[0.0, 1.0, 2.0]] * 2


def test_a_group_in_this_process_returns_the_rewards_of_the_whole(tmp_path: Path) -> None:
    sink = MemorySink()
    task = Ranked().tasks(1)[0]
    traces = asyncio.run(group(Ranked, task, loaded(tmp_path, "It is 8."), 3, sink=sink))
    assert [trace.reward for trace in traces] == [0.0, 1.0, 2.0]
    assert all(trace.sealed for trace in traces)
    assert {each.fate for each in facts.dispositions(sink.notes).values()} == {Fate.USED}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_judge_by_name_scores_and_its_questions_stand_in_the_traces(tmp_path: Path, workers: int) -> None:
    judge = script(tmp_path / "judge", "Fine.\nVerdict: 0.5")
    limits = {"judge": ResourceLimit(limit=1)}
    source = done(tmp_path, config(tmp_path, JUDGED, options={"judge": judge}, resources=limits), workers=workers)
    for trace in source.traces():
        assert trace.reward == 0.5
        (edge,) = trace.edges
        assert (edge.label, msgspec.json.decode(edge.detail)["policy"]) == (EdgeLabel.JUDGED_BY, judge)
        assert trace.graph.messages[edge.target.node].content == "Fine.\nVerdict: 0.5"
    assert report(source).dispositions[0].fate is Fate.USED
    broke = {each.name for each in audit(source).broke}
    assert broke <= {"duplicates", "flat_groups", "zero_variance"}, broke
    shared = read_resources(tmp_path / "run")
    assert shared is not None
    assert next(each for each in shared.limiters if each.name == "judge").entered == 6


def test_a_judge_of_a_whole_group_is_kept_beside_the_rewards(tmp_path: Path) -> None:
    judge = script(tmp_path / "judge", "Verdict: 1")
    source = done(tmp_path, config(tmp_path, RANKED, tasks=1, options={"judge": judge}))
    told = {each.rollout: each.value for each in source.annotations() if each.name == "judged"}
    assert set(told) == set(source.rollouts())
    assert {rows[0]["verdict"] for rows in told.values()} == {1.0}


def test_scoring_again_asks_judges_and_compares_groups_again(tmp_path: Path) -> None:
    ranked = done(tmp_path, config(tmp_path, RANKED))
    found = rescore(ranked, Ranked, EndingRules())
    assert {rollout: each.total for rollout, each in found.rewards.items()} == {
        rollout: each.total for rollout, each in facts.rewards(ranked.annotations()).items()
    }
    assert (found.same, found.changed, found.failed) == (6, 0, 0)


def test_whoever_compared_a_group_again_is_cleaned_up(tmp_path: Path) -> None:
    cleaned: list[Environment] = []

    class Tidy(Ranked):
        async def cleanup(self) -> None:
            cleaned.append(self)
            raise OSError("which says nothing of a reward")

    ranked = done(tmp_path, config(tmp_path, RANKED, tasks=1))
    assert rescore(ranked, Tidy, EndingRules()).failed == 0
    assert len({id(env) for env in cleaned}) == 3 + 1, "one for each attempt, and one for their group"


def test_scoring_again_loads_judges_by_name(tmp_path: Path) -> None:
    judge = script(tmp_path / "judge", "Verdict: 0.5")
    source = done(tmp_path, config(tmp_path, JUDGED, tasks=1, options={"judge": judge}))
    again = rescore(source, lambda: Judged(judge), EndingRules(), load_judge=judge_loader(Access()))
    assert (again.same, again.failed) == (3, 0)
    assert rescore(source, lambda: Judged(judge), EndingRules()).failed == 3
