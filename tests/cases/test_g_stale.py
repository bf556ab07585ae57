"""Staleness and groups in flight: which tokens count, what a queue holds, and groups that are given up whole."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from rollbook.policy import ScriptedPolicy
from rollbook.rewards import Outcome
from rollbook.rollout import GroupPlan, GroupRules, LoadedPolicy
from rollbook.rollout.pool import GroupBook, Order
from rollbook.rollout.staleness import StaleBy, StalenessBound, TokenVersions, split
from rollbook.run import RunConfig
from rollbook.run.group_queue import GroupQueue
from rollbook.run.planning import Planner
from rollbook.run.recording import Recorder, Silent
from rollbook.run.stream import RolloutStream, open_stream
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Disposition, EndingRules, Fate, Reason, Task, facts
from rollbook.worlds import register
from tests.cases.case import Script as Replies
from tests.cases.case import Talk, attempt, bytes_renderer, report, says
from tests.rollout.made import SMOLLM
from tests.run.test_stream import Trainee, settle

# G02: which rule applies is the bound's own, and stands in the record.


@report("G02")
def test_staleness_is_by_the_rule_that_was_chosen(given: dict[str, Any]) -> None:
    spans = given["meta"]["weight_versions"]
    found = TokenVersions(
        counts=tuple((int(each["version"][1:]), each["end"] - each["start"]) for each in spans), unknown=0
    )
    trainer, most = given["trainer_version"], given["max_lag"]
    assert found.counts == ((7, 57), (8, 71))
    assert sum(tokens for _, tokens in found.counts) == given["n_output"]
    expected = {StaleBy.OLDEST: 3, StaleBy.MEAN: 2.45, StaleBy.NEWEST: 2}
    for by, behind in expected.items():
        assert found.behind(trainer, by) == pytest.approx(behind, abs=0.01)
        rule = StalenessBound(most=most, by=by).drops(found, trainer)
        assert (rule is None) == (behind <= most)
        assert rule is None or rule.startswith(f"staleness by {by} at most 2: ")
        row = split(found, by, finished=8, taken=trainer)
        assert (row.by, row.total) == (by, pytest.approx(behind, abs=0.01))


# G16


class Endless(Talk):
    """As many tasks as are asked for."""

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"endless-{index}", prompt="go") for index in range(count)]


register("case-endless", Endless)
CONFIG = RunConfig(environment="case-endless", tasks=64, group=4)


def queue_of(folder: Path, tasks: int, size: int) -> tuple[GroupQueue, Planner]:
    """A queue with nothing in it, over a new run."""
    writer = RunWriter.create(folder)
    config = msgspec.structs.replace(CONFIG, tasks=tasks)
    planner = Planner(config, Endless().tasks(tasks), "run", RunReader(folder))
    recorder = Recorder(config, planner, writer, Silent())
    return GroupQueue(recorder, writer, size=size, bound=None, version=0, earlier={}), planner


def ended(order: Order, tokens: int) -> Outcome:
    """An attempt of so many sampled tokens, as the pool tells of it."""
    return Outcome(
        rollout=order.rollout,
        group=order.group,
        seat="solver",
        task=order.task.id,
        member=order.member,
        attempt=0,
        reason=Reason.FINAL_ANSWER,
        disposition=Disposition(Fate.USED, "final_answer: score"),
        reward=float(order.member % 2),
        vote=float(order.member % 2),
        turns=1,
        sampled=tokens,
        last_tool=None,
        versions=((0, tokens),),
    )


@report("G16")
def test_a_buffered_token_costs_less_than_16_bytes(given: dict[str, Any], tmp_path: Path) -> None:
    rollouts, tokens = given["rollouts"], given["tokens_each"]
    queue, planner = queue_of(tmp_path / "run", rollouts // CONFIG.group, rollouts // CONFIG.group)
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        while (book := planner.next_book()) is not None:
            queue.opened(book)
            actions = book.begin()
            for order, _ in actions.orders:
                outcome = ended(order, tokens)
                actions = book.ended(outcome, 0)
                queue.ended(outcome, late=False)
            assert actions.closed is not None
            queue.closed(actions.closed)
        after, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert queue.stats().waiting * CONFIG.group == rollouts
    assert queue.full
    assert (after - before) / (rollouts * tokens) < 0.5

    # What is read back from the store when a group is taken is arrays.
    long = attempt("r", 1.0, ids=np.arange(tokens, dtype=np.int32).tolist())
    assert long.graph.nbytes / tokens <= 16


@report("G16")
def test_a_slow_trainer_holds_the_rollouts_back(given: dict[str, Any], tmp_path: Path) -> None:
    """Groups that nobody takes are never more than the queue holds, however many there are to run."""
    assert given["rollouts"] > 3 * CONFIG.group
    script = Replies([says("a")])

    async def main() -> None:
        policy = LoadedPolicy(ScriptedPolicy(script), bytes_renderer())
        async with open_stream(CONFIG, tmp_path / "run", queue=3, policy=policy, start_jitter=0.0) as stream:
            for taken in range(4):
                await settle()
                stats = stream.stats()
                assert (stats.waiting, stats.open) == (3, 0)
                assert len(script.prompts) == (3 + taken) * CONFIG.group
                await anext(stream)

    asyncio.run(main())


@report("G16")
def test_a_straggler_does_not_pin_its_group(given: dict[str, Any]) -> None:
    plan = GroupPlan(id="g", task=Task(id="t", prompt="?"), size=32)
    book = GroupBook(plan, GroupRules(deadline=1.0), EndingRules())
    orders = [order for order, _ in book.begin().orders]
    for order in orders[:-1]:
        assert book.ended(ended(order, given["tokens_each"]), 0).closed is None
    actions = book.expire()
    assert actions.closed is not None
    assert actions.cancel == [orders[-1].rollout]
    assert actions.closed.used == 31


# G18


@report("G18")
def test_a_stale_group_is_given_up_whole(given: dict[str, Any], tmp_path: Path) -> None:
    """Two of four members run, two wait for a slot; the trainer is too far by now."""
    size, dispatched = given["group_size"], given["dispatched"]
    config = RunConfig(environment="runner-quiz", tasks=2, group=size)
    bound = StalenessBound(most=given["max_staleness"])
    engine = Trainee(lambda session: "-0000-" in session)
    engine.version = given["start_version"]

    async def body(stream: RolloutStream) -> None:
        await settle()
        assert len(engine.requests) == dispatched
        engine.version = given["now_version"]
        stream.advance(given["now_version"])
        group = await anext(stream)
        assert group.plan.task.id == "quiz-0-1"
        assert all(each.total == 0 for each in group.staleness.values())
        assert await anext(stream, None) is None
        stats = stream.stats()
        assert (stats.given_up, stats.empty, stats.stale, stats.open) == (1, 1, dispatched, 0)
        assert stats.stale_by_task == {"quiz-0-0": dispatched}

    async def main(resume: bool = False) -> None:
        policy = LoadedPolicy(engine, SMOLLM.renderer)
        async with open_stream(
            config,
            tmp_path / "run",
            policy=policy,
            concurrency=dispatched,
            bound=bound,
            version=given["now_version"] if resume else given["start_version"],
            start_jitter=0.0,
            resume=resume,
        ) as stream:
            if resume:
                assert await anext(stream, None) is None
            else:
                await body(stream)

    asyncio.run(asyncio.wait_for(main(), 20))
    asked = len(engine.requests)
    assert asked == dispatched + size  # the waiting members were never sent
    reader = RunReader(tmp_path / "run")
    notes = reader.annotations()
    fates, closed = facts.dispositions(notes), facts.advantages(notes)
    lost = [row.rollout for row in reader.summaries() if row.task == "quiz-0-0"]
    assert len(lost) == dispatched
    for rollout in lost:
        assert fates[rollout].fate is Fate.DROPPED
        assert fates[rollout].rule == "staleness by oldest at most 2: its group was given up at version 6"
        assert (closed[rollout].used, closed[rollout].scheduled, closed[rollout].advantage) == (0, size, None)
        assert facts.stalenesses(notes)[rollout].dropped
    # The group is closed with a record: a resume sends nothing of it.
    asyncio.run(asyncio.wait_for(main(resume=True), 20))
    assert len(engine.requests) == asked
