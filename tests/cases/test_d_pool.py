"""Reports about schedulers: a late result that nobody waited for, and an item whose owner is gone."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rollbook.envs import Environment
from rollbook.policy import Completion, TokenIds
from rollbook.rollout import LoadedPolicy
from rollbook.rollout.pool import Executor, Order, Result, Scheduler
from rollbook.rollout.snapshot import Snapshot
from rollbook.run import RunConfig, run
from rollbook.run.live_run import RunRequest, next_book, open_live_run
from rollbook.store import RunReader
from rollbook.trace import Fate, Message, Reason, Sampling, Task, Trace, facts
from tests.cases.case import report
from tests.rollout.made import SMOLLM, Engine, says
from tests.run.run_made import script

WORLD = "tests.cases.test_d_pool:Items"


class Items(Environment):
    """Tasks p1, p2 ...; a reply is worth what it says. `grave`: a file that is made by the worker that dies of p2."""

    def __init__(self, grave: str = "") -> None:
        self.grave = Path(grave) if grave else None

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"p{index + 1}", prompt="Go.") for index in range(count)]

    async def setup(self, task: Task) -> Sequence[Message]:
        if task.id == "p2" and self.grave is not None and not self.grave.exists():
            self.grave.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return task.messages()

    async def score(self, trace: Trace) -> float:
        return float(trace.text)


class Deaf:
    """A executor that a cancellation does not reach, as one behind a broken connection."""

    def __init__(self, executor: Executor) -> None:
        self.executor = executor

    async def run(self, order: Order) -> Result | None:
        return await self.executor.run(order)

    def cancel(self, rollout: str) -> None:
        pass

    def snapshot(self) -> Snapshot:
        return self.executor.snapshot()


class Takes(Engine):
    """Says something, after some seconds, for each attempt."""

    def __init__(self, replies: Sequence[tuple[str, float]]) -> None:
        super().__init__([says("x")])
        self.replies = replies

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        member, _, attempt = session.rpartition("-")[2].partition(".")
        del member
        text, seconds = self.replies[int(attempt or 0)]
        await asyncio.sleep(seconds)
        return says(text)


def run_with_deadline(folder: Path, engine: Engine, seconds: float, *, deaf: bool) -> RunReader:
    """A run of one task, whose attempts are given up after so many seconds."""

    async def main() -> None:
        asked = RunRequest(
            config=RunConfig(environment=WORLD, tasks=1, group=1),
            folder=folder,
            concurrency=2,
            start_jitter=0.0,
            policy=LoadedPolicy(engine, SMOLLM.renderer),
        )
        async with open_live_run(asked) as works:
            executor = Deaf(works.executor) if deaf else works.executor
            scheduler = Scheduler(executor, works.recorder, concurrency=2, order_seconds=seconds)
            await scheduler.run(functools.partial(next_book, works.planner, works.recorder))

    asyncio.run(main())
    return RunReader(folder, strict=True)


@report("D11")
def test_a_late_result_is_kept_and_not_used(given: dict[str, Any], tmp_path: Path) -> None:
    late, second = [event for event in given["events"] if event[0] == "result"]
    assert [event[0] for event in given["events"][:3]] == ["claim", "timeout", "claim"]
    engine = Takes([(f"{late[3]}", 1.4), (f"{second[3]}", 0.7)])
    reader = run_with_deadline(tmp_path / "run", engine, 0.9, deaf=True)
    stale, used = sorted(reader.summaries(), key=lambda row: row.attempt)
    fates = facts.dispositions(reader.annotations())
    assert (stale.reward, used.reward) == (1.0, 0.0)
    assert fates[stale.rollout].fate is Fate.DROPPED
    assert fates[stale.rollout].rule == "late: another attempt had taken its place"
    (advantage,) = facts.advantages(reader.annotations()).values()
    assert list(advantage.values) == [used.rollout], "exactly one result enters the group"


@report("D12")
def test_what_never_ends_is_given_up_at_its_deadline(given: dict[str, Any], tmp_path: Path) -> None:
    assert given["states"] == {"p1": "done", "p2": "running"}
    engine = Takes([("1", 1000.0), ("1", 0.0)])
    reader = run_with_deadline(tmp_path / "run", engine, 0.4, deaf=False)
    lost, done = sorted(reader.summaries(), key=lambda row: row.attempt)
    assert (lost.reason, done.reason) == (Reason.CANCELLED, Reason.FINAL_ANSWER)
    fates = facts.dispositions(reader.annotations())
    assert (fates[lost.rollout].fate, fates[done.rollout].fate) == (Fate.DROPPED, Fate.USED)


@report("D12")
def test_what_a_dead_owner_held_runs_again(given: dict[str, Any], tmp_path: Path) -> None:
    assert given["owner_of_p2"] == "dead task"
    config = RunConfig(
        environment=WORLD,
        options={"grave": str(tmp_path / "grave")},
        policy=script(tmp_path / "m", "1"),
        tasks=len(given["states"]),
        group=1,
    )
    asyncio.run(run(config, tmp_path / "run", workers=1, concurrency=1))
    assert (tmp_path / "grave").exists()
    ended = [(row.task, row.attempt, row.reason) for row in RunReader(tmp_path / "run", strict=True).summaries()]
    assert sorted(ended) == [
        ("p1", 0, Reason.FINAL_ANSWER),
        ("p2", 0, Reason.INTERRUPTED),
        ("p2", 1, Reason.FINAL_ANSWER),
    ]
