"""Groups: retries by rule with their own budgets, attempts that keep their ids, and seeds that differ."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from msgspec import structs

from rollbook.errors import StoreError, UsageError
from rollbook.rewards import Outcome, advantages, annotate, decide, outcome_of
from rollbook.rollout import GroupPlan, GroupRules, Limits, LoadedPolicy, Resources, RolloutSettings, group, rollout
from rollbook.rollout.backoff import FIRST, LONGEST, jittered
from rollbook.rollout.pool import Closed, GroupBook, KeepingSink, LocalWorker, Scheduler
from rollbook.trace import EndingRules, Fate, MemorySink, Message, Reason, Retry, RolloutFailure, Sampling, Task, Trace
from tests.rollout.made import SMOLLM, TASK, Engine, Said, Talk, never, says, why

LOST = RolloutFailure(Reason.SANDBOX_LOST, "host down")
LATE = RolloutFailure(Reason.ENGINE_TIMEOUT, "late")


def fates(sink: MemorySink) -> dict[str, str]:
    return {note.rollout: note.value["fate"] for note in sink.annotations() if note.name == "disposition"}


def member(*said: Said, rules: EndingRules | None = None, earlier: Sequence[Outcome] = ()) -> tuple[list[Trace], Any]:
    """A group of one, out of a run that may hold attempts already: the new attempts, and where they were kept."""
    sink, settings = MemorySink(), RolloutSettings(rules=rules or EndingRules())
    keeping = KeepingSink(sink)
    worker = LocalWorker(
        make_env=Talk,
        loaded=LoadedPolicy(Engine(said), SMOLLM.renderer),
        settings=settings,
        sink=keeping,
        resources=Resources(),
        run_id="r",
        config={"a": 1},
    )
    book = GroupBook(GroupPlan(id="g", task=TASK, size=1), GroupRules(), settings.rules, earlier=earlier)
    books = iter([book])

    async def next_group() -> GroupBook | None:
        return next(books, None)

    async def go() -> None:
        await Scheduler(worker, _Notes(sink), concurrency=1).run(next_group)

    asyncio.run(go())
    return keeping.sealed, sink


class _Notes:
    def __init__(self, sink: MemorySink) -> None:
        self._sink = sink

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        assert not late
        self._sink.annotate(annotate({outcome.rollout: outcome.disposition}))

    def closed(self, closed: Closed) -> None:
        assert closed.plan.id == "g"


def test_an_outcome_is_not_retried() -> None:
    (trace,), sink = member(says("x"))
    assert (trace.id, trace.head.member, trace.head.attempt) == ("g-0", 0, 0)
    assert (trace.head.run, trace.head.config) == ("r", {"a": 1})
    assert fates(sink) == {"g-0": Fate.USED}


def test_a_retried_attempt_keeps_its_place_and_its_own_id() -> None:
    attempts, sink = member(LOST, says("x"))
    assert [(each.id, each.head.attempt, why(each)) for each in attempts] == [
        ("g-0", 0, Reason.SANDBOX_LOST),
        ("g-0.1", 1, Reason.FINAL_ANSWER),
    ]
    assert fates(sink) == {"g-0": Fate.RETRIED, "g-0.1": Fate.USED}
    assert set(sink.sealed) == {"g-0", "g-0.1"}


def test_each_reason_has_its_own_budget_and_then_the_member_is_dropped() -> None:
    rules = EndingRules().override({Reason.SANDBOX_LOST: Retry(1), Reason.ENGINE_TIMEOUT: Retry(1)})
    attempts, sink = member(LOST, LATE, LOST, says("never asked"), rules=rules)
    assert [why(each) for each in attempts] == [Reason.SANDBOX_LOST, Reason.ENGINE_TIMEOUT, Reason.SANDBOX_LOST]
    assert list(fates(sink).values()) == [Fate.RETRIED, Fate.RETRIED, Fate.DROPPED]


def test_a_rule_of_no_retries_drops_at_once() -> None:
    attempts, sink = member(LOST, says("x"), rules=EndingRules().override({Reason.SANDBOX_LOST: Retry(0)}))
    assert len(attempts) == 1
    assert list(fates(sink).values()) == [Fate.DROPPED]


def test_earlier_attempts_count_and_the_next_one_is_behind_them() -> None:
    (first, second), _ = member(LOST, says("x"))
    assert second.head.attempt == 1
    kept = outcome_of(first, EndingRules(), decide(first, earlier=()))
    again, sink = member(LOST, says("y"), earlier=[kept])
    assert [each.head.attempt for each in again] == [1, 2]
    assert fates(sink) == {"g-0.1": Fate.RETRIED, "g-0.2": Fate.USED}
    third = outcome_of(again[0], EndingRules(), decide(again[0], earlier=()))
    gap, _ = member(says("z"), earlier=[kept, structs.replace(third, attempt=2)])
    assert gap[-1].head.attempt == 3, "an attempt that was lost does not make an id twice"


def test_the_wait_before_a_retry_grows_has_an_end_and_is_spread() -> None:
    longest = [jittered(tries, 1.0) for tries in (0, 1, 2, 8, 10_000)]
    assert longest == [FIRST, 2 * FIRST, 4 * FIRST, LONGEST, LONGEST]
    assert [jittered(tries, 0.0) for tries in (0, 1, 10_000)] == [FIRST / 2, FIRST, LONGEST / 2]


def run_group(*said: Said, size: int = 4, seed: int | None = 7, task: Task = TASK, **more: Any) -> tuple[Any, Engine]:
    engine = Engine(said)
    settings = RolloutSettings(sampling=Sampling(seed=seed))
    traces = asyncio.run(group(Talk, task, LoadedPolicy(engine, SMOLLM.renderer), size, settings=settings, **more))
    return traces, engine


def seeds(engine: Engine) -> list[int | None]:
    return [asked.sampling.seed for asked in engine.requests]


def test_a_group_gives_all_attempts_and_the_retried_ones_have_no_vote() -> None:
    sink = MemorySink()
    traces, _ = run_group(LOST, says("x"), sink=sink)
    assert len(traces) == 5
    assert len({trace.id for trace in traces}) == 5
    assert sorted(trace.head.member for trace in traces) == [0, 0, 1, 2, 3]
    assert len({trace.head.group for trace in traces}) == 1
    assert sorted(fates(sink).values()) == [Fate.RETRIED, *[Fate.USED] * 4]
    (found,) = advantages(traces).groups
    assert (found.scheduled, found.used, set(found.values.values())) == (4, 4, {0.0})


def test_seeds_differ_by_member_and_task_and_come_again_with_the_same_seed() -> None:
    first, again = seeds(run_group(says("x"))[1]), seeds(run_group(says("x"))[1])
    assert first == again
    assert len(set(first)) == 4
    other = seeds(run_group(says("x"), seed=8)[1]) + seeds(run_group(says("x"), task=Task(id="u", prompt="x"))[1])
    assert not set(first) & set(other)


def test_a_retried_attempt_draws_anew() -> None:
    _, engine = run_group(LOST, says("x"), size=1)
    one, two = seeds(engine)
    assert one != two


def test_so_many_requests_at_once() -> None:
    most = 0

    async def counts() -> Any:
        nonlocal most
        most = max(most, engine.running)
        await asyncio.sleep(0.002)
        return says("x")

    engine = Engine([counts])
    traces = asyncio.run(group(Talk, TASK, LoadedPolicy(engine, SMOLLM.renderer), 6, concurrency=2))
    assert (most, len(traces)) == (2, 6)


class NoDisk(MemorySink):
    def seal(self, trace: Trace) -> None:
        raise StoreError("No space left on device")


def test_what_breaks_a_group_is_raised_bare_and_leaves_nothing_running() -> None:
    async def scenario() -> None:
        loaded = LoadedPolicy(Engine([says("x"), never]), SMOLLM.renderer)
        with pytest.raises(StoreError, match="No space"):
            await group(Talk, TASK, loaded, 3, sink=NoDisk())
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(scenario())


def test_an_environment_that_cannot_be_made_is_the_callers_mistake() -> None:
    def make() -> Talk:
        raise UsageError("no such option")

    loaded = LoadedPolicy(Engine([says("x")]), SMOLLM.renderer)
    with pytest.raises(UsageError, match="no such option"):
        asyncio.run(group(make, TASK, loaded, 2))


def test_a_cancelled_group_seals_every_member_and_retries_none() -> None:
    all_there = asyncio.Event()
    engine = Engine([never])

    async def waits() -> Any:
        if engine.running == 3:
            all_there.set()
        return await never()

    engine.said = [waits]

    async def scenario() -> MemorySink:
        sink = MemorySink()
        task = asyncio.create_task(group(Talk, TASK, LoadedPolicy(engine, SMOLLM.renderer), 3, sink=sink))
        await all_there.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return sink

    sink = asyncio.run(scenario())
    assert [why(trace) for trace in sink.sealed.values()] == [Reason.CANCELLED] * 3
    assert sink.running == {}


def test_cancelled_is_never_retried_by_rule() -> None:
    (first,), _ = member(says("x"))
    assert why(first) is Reason.FINAL_ANSWER
    cancelled = RolloutFailure(Reason.CANCELLED, "stopped")
    attempts, sink = member(cancelled, says("x"))
    assert len(attempts) == 1
    assert list(fates(sink).values()) == [Fate.DROPPED]


def test_one_rollout_alone() -> None:
    class Shows(Talk):
        async def score(self, trace: Trace) -> float:
            shown: Message | None = trace.answer
            return float(shown is not None and shown.content == "five")

    engine = Engine([says("five")])
    settings = RolloutSettings(limits=Limits(max_turns=1), sampling=Sampling(seed=3))
    loaded = LoadedPolicy(engine, SMOLLM.renderer)
    trace = asyncio.run(rollout(Shows, TASK, loaded, settings=settings))
    again = asyncio.run(rollout(Shows, TASK, loaded, settings=settings))
    assert (trace.reward, trace.sealed, trace.head.attempt) == (1.0, True, 0)
    assert trace.id != again.id
    assert seeds(engine)[0] == seeds(engine)[1]
