"""One rollout: one ending, clean-up once on every path, sealed on every path, nothing left running."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Any

import pytest

from rollbook.envs import Rewards, StepResult, tool
from rollbook.errors import ConfigError, StoreError
from rollbook.rollout import Limits, Part, ResourceLimit, Resources, RolloutSettings
from rollbook.trace import (
    Drop,
    EndingRules,
    FinalState,
    MemorySink,
    Message,
    Reason,
    RolloutFailure,
    Sampling,
    Score,
    ScoringStatus,
    Task,
    Trace,
)
from tests.rollout.made import TASK, Engine, Talk, attempt, call, detail, play, says, why


async def break_down(how: str) -> Any:
    """What code that is not ours may do."""
    if how == "hangs":
        await asyncio.sleep(1000)
    if how == "object":
        return object()
    raise {
        "raises": ValueError("broke"),
        "failure": RolloutFailure(Reason.SANDBOX_LOST, "host down"),
        "cancels": asyncio.CancelledError(),
    }[how]


def flawed(where: str, how: str) -> Talk:
    """An environment that fails in one place."""

    class Flawed(Talk):
        async def setup(self, task: Task) -> Sequence[Message]:
            return await break_down(how) if where == "setup" else await super().setup(task)

        async def final_state(self) -> FinalState | None:
            return await break_down(how) if where == "final_state" else None

        async def score(self, trace: Trace) -> float:
            return await break_down(how) if where == "score" else await super().score(trace)

        async def cleanup(self) -> None:
            await super().cleanup()
            if where == "cleanup":
                await break_down(how)

    return Flawed()


SHORT = Limits(setup_timeout=0.03, score_timeout=0.03, cleanup_timeout=0.03)


@pytest.mark.parametrize("how", ["raises", "hangs", "cancels", "object"])
def test_a_setup_that_fails_is_an_env_setup_error_and_is_cleaned_up(how: str) -> None:
    env = flawed("setup", how)
    trace = play(env, says("x"), limits=SHORT)
    assert why(trace) is Reason.ENV_SETUP
    assert env.log == ["cleanup"]
    assert (trace.calls, trace.tail.scoring.status) == ([], ScoringStatus.PENDING)


def test_a_setup_may_name_its_failure() -> None:
    assert why(play(flawed("setup", "failure"), says("x"))) is Reason.SANDBOX_LOST


@pytest.mark.parametrize("how", ["raises", "hangs", "failure", "cancels", "object"])
def test_a_scorer_that_fails_leaves_the_ending_alone(how: str) -> None:
    env = flawed("score", how)
    trace = play(env, says("x"), limits=SHORT)
    assert why(trace) is Reason.FINAL_ANSWER
    assert (trace.tail.scoring.status, trace.reward) == (ScoringStatus.FAILED, None)
    assert env.log.count("cleanup") == 1


@pytest.mark.parametrize("how", ["raises", "hangs", "failure", "cancels"])
def test_a_clean_up_that_fails_is_noted(how: str) -> None:
    trace = play(flawed("cleanup", how), says("x"), limits=SHORT)
    assert (why(trace), trace.reward) == (Reason.FINAL_ANSWER, 1.0)
    assert [note.where for note in trace.tail.errors] == ["cleanup"]
    assert trace.sealed


@pytest.mark.parametrize("how", ["raises", "hangs", "failure", "object"])
def test_a_final_state_that_fails_is_noted(how: str) -> None:
    trace = play(flawed("final_state", how), says("x"), limits=SHORT)
    assert (trace.reward, trace.tail.final_state) == (1.0, None)
    assert [note.where for note in trace.tail.errors] == ["final_state"]


def test_methods_that_are_no_coroutines_are_failures_like_any_other() -> None:
    class Plain(Talk):
        def final_state(self) -> Any:  # type: ignore[override]
            raise ValueError("at once")

        def cleanup(self) -> Any:  # type: ignore[override]
            raise ValueError("at once")

    trace = play(Plain(), says("x"))
    assert [note.where for note in trace.tail.errors] == ["final_state", "cleanup"]
    assert trace.sealed


@pytest.mark.parametrize("data", [{"files": ("a", 1)}, None, 3])
def test_a_final_state_is_kept_as_plain_data(data: Any) -> None:
    class Keeps(Talk):
        async def final_state(self) -> FinalState:
            return FinalState(text="done", data=data)

    final = play(Keeps(), says("x")).tail.final_state
    assert final is not None
    assert (final.text, final.data) == ("done", {"files": ["a", 1]} if isinstance(data, dict) else data)


def test_a_final_state_that_is_no_plain_data_loses_nothing_else() -> None:
    class Keeps(Talk):
        async def final_state(self) -> FinalState:
            return FinalState(data={1, 2})

    trace = play(Keeps(), says("x"))
    assert (trace.reward, trace.tail.final_state) == (1.0, None)
    assert "set" in trace.tail.errors[0].text


@pytest.mark.parametrize(
    ("rules", "scored"),
    [({}, False), ({Reason.ENGINE_TIMEOUT: Score()}, True), ({Reason.ENGINE_TIMEOUT: Drop()}, False)],
)
def test_only_what_the_rules_may_use_is_scored(rules: Any, scored: bool) -> None:
    env = Talk()
    trace = play(env, RolloutFailure(Reason.ENGINE_TIMEOUT, "x"), rules=EndingRules(rules))
    assert env.log == ["setup", *(["score"] if scored else []), "cleanup"]
    assert trace.reward == (1.0 if scored else None)


def test_parts_and_metrics_of_a_reward_are_kept() -> None:
    class Parts(Talk):
        async def score(self, trace: Trace) -> Any:
            return Rewards(0.5, {"a": 0.5}, {"length": 3.0})

    tail = play(Parts(), says("x")).tail
    assert (tail.reward, tail.reward_parts, tail.metrics) == (0.5, {"a": 0.5}, {"length": 3.0})


def test_the_split_adds_up() -> None:
    class Slow(Talk):
        async def setup(self, task: Task) -> Sequence[Message]:
            await asyncio.sleep(0.01)
            return task.messages()

        async def score(self, trace: Trace) -> float:
            await asyncio.sleep(0.01)
            return 1.0

        async def cleanup(self) -> None:
            await asyncio.sleep(0.01)

    times = play(Slow(), says("x")).tail.times
    assert times is not None
    parts = {part: getattr(times, str(part)) for part in Part}
    assert sum(parts.values()) == pytest.approx(times.wall, abs=1e-6)
    assert min(parts[part] for part in (Part.SANDBOX, Part.SCORING, Part.CLEANUP)) >= 0.009
    assert parts[Part.CPU] > 0


def test_a_limit_in_the_sampling_is_refused() -> None:
    with pytest.raises(ConfigError, match="max_generation"):
        RolloutSettings(sampling=Sampling(max_tokens=5))


# Disks


class BadDisk(MemorySink):
    """Refuses the calls that it is told to."""

    def __init__(self, *refused: str, times: int = 1) -> None:
        super().__init__()
        self.refused = dict.fromkeys(refused, times)
        self.asked: list[str] = []

    def _meet(self, what: str) -> None:
        self.asked.append(what)
        if self.refused.get(what, 0) > 0:
            self.refused[what] -= 1
            raise StoreError("No space left on device")

    def begin(self, trace: Trace) -> None:
        self._meet("begin")
        super().begin(trace)

    def turn(self, trace: Trace) -> None:
        self._meet("turn")
        super().turn(trace)

    def seal(self, trace: Trace) -> None:
        self._meet("seal")
        super().seal(trace)


def test_a_full_disk_in_a_turn_is_noted_and_the_rollout_goes_on() -> None:
    sink = BadDisk("turn")
    trace = play(Talk("go on"), says("x"), sink=sink)
    assert (why(trace), trace.reward) == (Reason.FINAL_ANSWER, 1.0)
    assert [(note.where, note.text) for note in trace.tail.errors] == [("store", "No space left on device")]
    assert sink.asked == ["begin", "turn", "turn", "seal"]


def test_a_full_disk_at_the_seal_gets_a_second_try() -> None:
    sink = BadDisk("seal")
    trace = play(Talk(), says("x"), sink=sink)
    assert sink.sealed[trace.id] is trace
    assert trace.sealed


def test_a_disk_that_stays_full_is_raised_and_the_record_in_memory_is_whole() -> None:
    sink, env = BadDisk("seal", times=2), Talk()
    with pytest.raises(StoreError):
        play(env, says("x"), sink=sink)
    (trace,) = sink.running.values()
    assert (why(trace), trace.reward, trace.sealed) == (Reason.FINAL_ANSWER, 1.0, False)
    assert env.log.count("cleanup") == 1


def test_a_record_that_cannot_begin_starts_nothing() -> None:
    env = Talk()
    with pytest.raises(StoreError):
        play(env, says("x"), sink=BadDisk("begin"))
    assert env.log == []


# Cancellation


def test_a_process_that_stops_cleans_up_and_seals_on_its_way() -> None:
    class Leaves(Talk):
        async def step(self, reply: Message) -> StepResult | None:
            raise KeyboardInterrupt

    env, sink = Leaves(), MemorySink()
    with pytest.raises(KeyboardInterrupt):
        play(env, says("x"), sink=sink)
    (trace,) = sink.sealed.values()
    assert (why(trace), env.log) == (Reason.INTERRUPTED, ["setup", "cleanup"])


class Everywhere(Talk):
    """Gives the loop a turn in every place where a rollout may wait."""

    async def setup(self, task: Task) -> Sequence[Message]:
        self.log.append("setup")
        await asyncio.sleep(0)
        return task.messages()

    @tool
    async def add(self, a: int, b: int) -> int:
        """Adds."""
        for _ in range(a):
            await asyncio.sleep(0)
        return a + b

    async def step(self, reply: Message) -> StepResult | None:
        await asyncio.sleep(0)
        return None

    async def final_state(self) -> FinalState:
        await asyncio.sleep(0)
        return FinalState(text="state")

    async def score(self, trace: Trace) -> float:
        self.log.append("score")
        await asyncio.sleep(0)
        return 1.0

    async def cleanup(self) -> None:
        self.log.append("cleanup")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        self.log.append("cleaned")


async def thinks() -> Any:
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    return says(call() + call(arguments='{"a": 5, "b": 1}'))


async def answers() -> Any:
    await asyncio.sleep(0)
    return says("five")


async def cancelled_after(steps: int, again: int | None) -> tuple[Everywhere, MemorySink, bool]:
    env, sink, engine = Everywhere(), MemorySink(), Engine([thinks, answers])
    resources = Resources({"engine": ResourceLimit(limit=1)})
    task = asyncio.create_task(attempt(env, engine, sink=sink, resources=resources, limits=Limits()))
    for _ in range(steps):
        await asyncio.sleep(0)
    task.cancel()
    for _ in range(again or 0):
        await asyncio.sleep(0)
    if again is not None:
        task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}, "something is left running"
    assert all((each.in_use, each.waiting) == (0, 0) for each in resources.stats())
    assert engine.running == 0
    return env, sink, task.cancelled()


@pytest.mark.parametrize("again", [None, 1, 2, 3])
def test_a_cancellation_at_any_moment_cleans_up_once_and_seals(again: int | None) -> None:
    seen: set[Reason] = set()
    for steps in range(1, 200):
        env, sink, cancelled = asyncio.run(cancelled_after(steps, again))
        assert env.log.count("cleanup") == env.log.count("cleaned") == 1, f"{steps} steps: {env.log}"
        (trace,) = sink.sealed.values()
        assert trace.sealed
        assert sink.running == {}
        seen.add(why(trace))
        times = trace.tail.times
        assert times is not None
        assert sum(getattr(times, str(part)) for part in Part) == pytest.approx(times.wall, abs=1e-6)
        if why(trace) is Reason.CANCELLED:
            assert "score" not in env.log
        assert trace.reward == (1.0 if why(trace) is Reason.FINAL_ANSWER else None)
        if not cancelled:
            assert steps > 10
            assert seen == {Reason.CANCELLED, Reason.FINAL_ANSWER}
            return
    raise AssertionError("the rollout never ended")


def test_a_rollout_that_was_cancelled_before_it_began_leaves_nothing() -> None:
    env, sink, cancelled = asyncio.run(cancelled_after(0, None))
    assert (env.log, sink.sealed, sink.running, cancelled) == ([], {}, {}, True)


def cancelled_while_scoring(seconds: float) -> tuple[Trace, list[str]]:
    scoring = asyncio.Event()

    class Waits(Talk):
        async def score(self, trace: Trace) -> float:
            scoring.set()
            await asyncio.sleep(seconds)
            return 1.0

    async def scenario() -> tuple[Trace, list[str]]:
        env, sink = Waits(), MemorySink()
        limits = Limits(score_timeout=5.0 if seconds < 1 else 0.05)
        task = asyncio.create_task(attempt(env, Engine([says("x")]), sink=sink, limits=limits))
        await scoring.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        (trace,) = sink.sealed.values()
        return trace, env.log

    return asyncio.run(scenario())


def test_a_cancellation_waits_for_the_scorer_so_that_what_is_finished_counts() -> None:
    trace, log = cancelled_while_scoring(0.01)
    assert (why(trace), trace.reward, log[-1]) == (Reason.FINAL_ANSWER, 1.0, "cleanup")


def test_a_cancellation_waits_no_longer_than_the_scorer_may_take() -> None:
    trace, log = cancelled_while_scoring(1000)
    assert (why(trace), trace.reward, log[-1]) == (Reason.FINAL_ANSWER, None, "cleanup")
    assert trace.tail.scoring.status is ScoringStatus.FAILED


def test_an_ending_that_came_before_the_cancellation_stays() -> None:
    async def lingers(session: Any) -> None:
        with contextlib.suppress(Exception):
            await session.answer(await session.reply(session.observation))
        await asyncio.sleep(1000)

    async def scenario() -> MemorySink:
        sink = MemorySink()
        task = asyncio.create_task(attempt(Talk(), Engine([says("x")]), sink=sink, agent=lingers))
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return sink

    (trace,) = asyncio.run(scenario()).sealed.values()
    assert why(trace) is Reason.FINAL_ANSWER


def test_a_rollout_never_blocks_the_loop() -> None:
    """Nothing but short steps: a beat beside 20 rollouts is never far apart."""

    async def scenario() -> float:
        loop = asyncio.get_running_loop()
        longest = 0.0

        async def beat() -> None:
            nonlocal longest
            while True:
                before = loop.time()
                await asyncio.sleep(0.001)
                longest = max(longest, loop.time() - before)

        heart = asyncio.create_task(beat())
        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(attempt(Everywhere(), Engine([thinks, answers])))
        heart.cancel()
        return longest

    assert asyncio.run(scenario()) < 1.0


def test_the_record_tells_who_ran_what() -> None:
    trace = play(Talk(), says("five"), task=TASK)
    assert (trace.head.environment, trace.head.tools_rendered, trace.task) == ("talk", True, TASK)
    assert trace.head.started is not None
    assert trace.tail.finished is not None
    assert detail(trace) == ""
