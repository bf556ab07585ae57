"""Rollouts beside a trainer: first finished first, bounded, as stale as is allowed, and nothing handed out twice."""

from __future__ import annotations

import asyncio
import dataclasses
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError, StoreError, UsageError
from rollbook.policy import Completion, TokenIds
from rollbook.policy.weights import PauseMode
from rollbook.rewards import Outcome
from rollbook.rollout import GroupRules, LoadedPolicy
from rollbook.rollout.staleness import StaleBy, StalenessBound
from rollbook.run import RunConfig, open_run, run
from rollbook.run.group_queue import PRODUCER
from rollbook.run.recording import Silent
from rollbook.run.stream import ClosedGroup, RolloutStream, open_stream
from rollbook.store import AnnotationWriter, RunReader
from rollbook.trace import Annotation, Fate, Sampling, facts
from tests.rollout.made import SMOLLM, Engine, says, versions_of
from tests.run.run_made import script
from tests.run.test_runner import CONFIG, ByMember, check_whole, notes

TWO = RunConfig(environment="runner-quiz", tasks=2, group=2)


class Trainee(Engine):
    """An engine with weights of some version; even members are right. It is at a gate for each request: `held` says
    which sessions wait there until `free` is called."""

    def __init__(self, held: Callable[[str], bool] = lambda session: False) -> None:
        super().__init__([says("x")])
        self.version: int | None = 0
        self.held = held
        self.gate = asyncio.Event()
        self.most = 0

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        await super().sample(prompt, sampling, session=session)
        version = self.version
        await asyncio.sleep(0)
        if self.held(session):
            await self.gate.wait()
        member = int(session.rpartition("-")[2].partition(".")[0])
        said = says("wrong" if member % 2 else "right")
        return said if version is None else of_version(said, version)


def of_version(said: Completion, version: int) -> Completion:
    return dataclasses.replace(said, versions=((version, len(said.token_ids)),))


def stream(folder: Path, engine: Engine, body: Callable[[RolloutStream], Awaitable[Any]], **more: Any) -> Any:
    async def main() -> Any:
        config = more.pop("config", TWO)
        loaded = LoadedPolicy(engine, SMOLLM.renderer)
        async with open_stream(config, folder, policy=loaded, start_jitter=0.0, **more) as opened:
            return await body(opened)

    return asyncio.run(asyncio.wait_for(main(), 30))


async def everything(opened: RolloutStream) -> list[ClosedGroup]:
    return [group async for group in opened]


def group_number(session: str) -> int:
    return int(session.split("-")[1][:4])


async def settle() -> None:
    """Let everything run that can."""
    for _ in range(200):
        await asyncio.sleep(0)


# Delivery


def test_each_group_is_handed_out_once_with_its_facts_recorded_before(tmp_path: Path) -> None:
    async def body(opened: RolloutStream) -> list[ClosedGroup]:
        seen: list[ClosedGroup] = []
        async for group in opened:
            recorded = facts.advantages(RunReader(tmp_path / "run").annotations())
            assert {rollout: recorded[rollout].advantage for rollout in group.values} == group.values
            assert [trace.id for trace in group.traces()] == list(group.values)
            assert all(trace.sealed for trace in group.traces())
            seen.append(group)
        return seen

    seen = stream(tmp_path / "run", Trainee(), body, config=CONFIG)
    assert sorted(group.plan.task.id for group in seen) == [f"quiz-0-{n}" for n in range(3)]
    assert all(sorted(group.values.values()) == [-0.5, -0.5, 0.5, 0.5] for group in seen)
    assert not any(group.zero_variance for group in seen)
    check_whole(tmp_path / "run")


def test_the_first_to_close_comes_first(tmp_path: Path) -> None:
    engine = Trainee(lambda session: group_number(session) == 0)

    async def body(opened: RolloutStream) -> list[str]:
        first = await anext(opened)
        engine.gate.set()
        return [group.plan.task.id for group in (first, await anext(opened))]

    assert stream(tmp_path / "run", engine, body) == ["quiz-0-1", "quiz-0-0"]


def test_the_trainer_waits_while_nothing_is_ready_and_at_no_other_time(tmp_path: Path) -> None:
    engine = Trainee(lambda session: group_number(session) == 2)

    async def body(opened: RolloutStream) -> None:
        await anext(opened)
        before = opened.stats().trainer_waited
        while opened.stats().waiting < 1:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await asyncio.sleep(0.1)  # it learns, and the group of the held rollouts runs
        await anext(opened)
        assert opened.stats().trainer_waited == before, "what is ready is not waited for"
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(anext(opened), 0.15)
        asked = opened.stats().trainer_waited - before
        assert asked >= 0.14, "asking in vain is waiting"
        asyncio.get_running_loop().call_later(0.15, engine.gate.set)
        since = time.monotonic()
        await anext(opened)
        assert 0.14 <= opened.stats().trainer_waited - before - asked <= time.monotonic() - since

    stream(tmp_path / "run", engine, body, config=msgspec.structs.replace(TWO, tasks=3))


@pytest.mark.parametrize("rounds", [2, None])
def test_every_round_draws_each_task_anew(tmp_path: Path, rounds: int | None) -> None:
    engine = Trainee()

    async def body(opened: RolloutStream) -> list[ClosedGroup]:
        return [await anext(opened) for _ in range(4)]

    seen = stream(tmp_path / "run", engine, body, rounds=rounds)
    assert Counter((group.plan.task.id, group.plan.round) for group in seen) == {
        ("quiz-0-0", 0): 1,
        ("quiz-0-1", 0): 1,
        ("quiz-0-0", 1): 1,
        ("quiz-0-1", 1): 1,
    }
    seeds = Counter(each.sampling.seed for each in engine.requests)
    assert set(seeds.values()) == {1}
    assert len({group.plan.id for group in seen}) == 4


@given(size=st.integers(1, 4), concurrency=st.integers(1, 9), pauses=st.lists(st.booleans(), max_size=12))
@settings(max_examples=15, deadline=None)
def test_open_and_waiting_groups_never_exceed_the_queue(
    tmp_path_factory: pytest.TempPathFactory, size: int, concurrency: int, pauses: list[bool]
) -> None:
    folder = tmp_path_factory.mktemp("stream") / "run"
    engine = Trainee()

    async def body(opened: RolloutStream) -> int:
        taken = 0
        for pause in [*pauses, *[False] * 20]:
            if pause:
                await settle()
            stats = opened.stats()
            assert stats.open + stats.waiting <= size
            begun = len({group_number(each.session) for each in engine.requests})
            assert begun <= taken + size
            if await anext(opened, None) is None:
                break
            taken += 1
        return taken

    config = msgspec.structs.replace(TWO, tasks=5)
    assert stream(folder, engine, body, config=config, queue=size, concurrency=concurrency) == 5


def test_the_trainers_waiting_and_the_groups_waiting_are_told_apart(tmp_path: Path) -> None:
    engine = Trainee(lambda session: True)

    async def body(opened: RolloutStream) -> None:
        asyncio.get_running_loop().call_later(0.1, engine.gate.set)
        await anext(opened)
        await asyncio.sleep(0.15)
        late = await anext(opened)
        assert 0.14 <= late.queued < 1
        stats = opened.stats()
        assert 0.09 <= stats.trainer_waited < 1
        assert late.queued <= stats.queued_longest <= stats.queued
        assert (stats.delivered, stats.used, stats.open, stats.waiting) == (2, 4, 0, 0)

    stream(tmp_path / "run", engine, body)
    walls = [trace.tail.times.wall for trace in RunReader(tmp_path / "run").traces() if trace.tail.times]
    assert max(walls) < 0.14


# Staleness


async def three_versions(opened: RolloutStream, engine: Trainee) -> list[ClosedGroup]:
    """Group 1 waits in the queue, group 0 is in flight while the trainer goes from 0 to 3."""
    await settle()
    for version in (1, 2, 3):
        engine.version = version
        opened.advance(version)
    engine.gate.set()
    return await everything(opened)


def test_staleness_splits_into_flight_and_queue(tmp_path: Path) -> None:
    engine = Trainee(lambda session: group_number(session) == 0)
    seen = stream(tmp_path / "run", engine, lambda opened: three_versions(opened, engine))
    found = {
        group.plan.task.id: {(each.in_flight, each.in_queue, each.total) for each in group.staleness.values()}
        for group in seen
    }
    assert found == {"quiz-0-1": {(0, 3, 3)}, "quiz-0-0": {(3, 0, 3)}}
    recorded = facts.stalenesses(RunReader(tmp_path / "run").annotations())
    assert {rollout: each for group in seen for rollout, each in group.staleness.items()} == recorded


def test_what_is_too_stale_is_dropped_in_the_queue_and_given_up_in_flight(tmp_path: Path) -> None:
    engine = Trainee(lambda session: group_number(session) == 0)

    async def body(opened: RolloutStream) -> None:
        assert await three_versions(opened, engine) == []
        stats = opened.stats()
        assert (stats.stale, stats.empty, stats.given_up, stats.delivered) == (4, 2, 1, 0)
        assert stats.stale_by_task == {"quiz-0-0": 2, "quiz-0-1": 2}
        assert stats.stale_by_tool == {"none": 4}
        assert sum(stats.stale_by_length.values()) == 4

    stream(tmp_path / "run", engine, body, bound=StalenessBound(most=2))
    reader = RunReader(tmp_path / "run")
    fates = facts.dispositions(reader.annotations())
    assert {row.rollout: fates[row.rollout].fate for row in reader.summaries()} == dict.fromkeys(
        reader.rollouts(), Fate.DROPPED
    )
    assert all(fate.rule.startswith("staleness by oldest at most 2") for fate in fates.values())
    given = facts.advantages(reader.annotations())
    assert all(given[rollout].used == 0 and given[rollout].advantage is None for rollout in reader.rollouts())
    assert all(each.dropped for each in facts.stalenesses(reader.annotations()).values())


def test_a_group_loses_its_stale_members_and_the_others_are_compared(tmp_path: Path) -> None:
    """Member 0 was sampled from version 0, the others from version 3."""
    config = msgspec.structs.replace(TWO, tasks=1, group=4)

    async def body(opened: RolloutStream) -> ClosedGroup:
        await settle()
        opened.advance(3)
        engine.version = 3
        engine.gate.set()
        return await anext(opened)

    # A rollout in flight is not certain to be stale by its mean.
    bound = StalenessBound(most=2, by=StaleBy.MEAN)

    class Late(Trainee):
        async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
            said = await super().sample(prompt, sampling, session=session)
            assert self.version is not None
            return of_version(said, self.version)

    engine = Late(lambda session: not session.endswith("-0"))
    group = stream(tmp_path / "run", engine, body, config=config, bound=bound)
    assert len(group.values) == 3
    assert sum(group.values.values()) == pytest.approx(0)
    dropped = [each for each in group.outcomes if each.vote is None]
    assert [each.member for each in dropped] == [0]
    assert dropped[0].disposition.rule == "staleness by mean at most 2: 3 behind version 3"
    assert (group.advantages[0].scheduled, group.advantages[0].used) == (4, 3)


def test_versions_that_nobody_told_are_unknown_and_not_zero(tmp_path: Path) -> None:
    engine = Trainee()
    engine.version = None

    async def body(opened: RolloutStream) -> list[ClosedGroup]:
        await settle()
        opened.advance(9)
        seen = await everything(opened)
        assert opened.stats().unknown == 4
        return seen

    seen = stream(tmp_path / "a", engine, body, bound=StalenessBound(most=2))
    assert all(each.total is None for group in seen for each in group.staleness.values())

    async def strict(opened: RolloutStream) -> None:
        assert await everything(opened) == []
        assert opened.stats().stale == 4

    stream(tmp_path / "b", engine, strict, bound=StalenessBound(most=2, drop_unknown=True))


def test_a_version_only_rises(tmp_path: Path) -> None:
    async def body(opened: RolloutStream) -> None:
        opened.advance(4)
        assert opened.version == 4
        for version in (4, 3):
            with pytest.raises(UsageError, match="no later one"):
                opened.advance(version)

    stream(tmp_path / "run", Trainee(), body, version=2)


# Weights


class Control:
    """Writes down what it was told, and gives the engine its version."""

    def __init__(self, engine: Trainee, *, breaks: bool = False) -> None:
        self.engine, self.breaks = engine, breaks
        self.log: list[str] = []

    async def open(self) -> None:
        self.log.append("open")

    async def close(self) -> None:
        self.log.append("close")

    async def pause(self, mode: PauseMode) -> None:
        self.log.append(f"pause {mode}")

    async def resume(self) -> None:
        self.log.append("resume")

    async def update(self, weights: Path, version: int) -> None:
        if self.breaks:
            raise UsageError("no such folder")
        self.log.append(f"{weights} {version}")
        self.engine.version = version

    async def version(self) -> int | None:
        return self.engine.version


def test_an_update_pauses_loads_and_resumes(tmp_path: Path) -> None:
    engine = Trainee()
    control = Control(engine)

    async def body(opened: RolloutStream) -> list[ClosedGroup]:
        first = await anext(opened)
        await opened.update(Path("w"), 1, mode=PauseMode.WAIT)
        assert opened.version == 1
        return [first, await anext(opened)]

    seen = stream(tmp_path / "run", engine, body, control=control, concurrency=1)
    assert control.log == ["open", "pause wait", "w 1", "resume", "close"]
    assert [group.version for group in seen] == [0, 1]


def test_an_update_that_fails_leaves_version_and_pause(tmp_path: Path) -> None:
    engine = Trainee()
    control = Control(engine, breaks=True)

    async def body(opened: RolloutStream) -> None:
        with pytest.raises(UsageError, match="no such folder"):
            await opened.update(Path("w"), 1)
        assert opened.version == 0

    stream(tmp_path / "run", engine, body, control=control)
    assert control.log == ["open", "pause keep", "close"]


def test_without_control_there_is_no_update(tmp_path: Path) -> None:
    async def body(opened: RolloutStream) -> None:
        with pytest.raises(UsageError, match="control="):
            await opened.update(Path("w"), 1)

    stream(tmp_path / "run", Trainee(), body)


# Ends and resumes


def test_leaving_keeps_what_ended_and_a_resume_hands_out_the_rest(tmp_path: Path) -> None:
    config = msgspec.structs.replace(TWO, tasks=4)
    engine = Trainee(lambda session: group_number(session) == 3)

    async def first(opened: RolloutStream) -> str:
        group = await anext(opened)
        await settle()
        assert (opened.stats().waiting, opened.stats().open) == (2, 1)
        return group.plan.id

    taken = stream(tmp_path / "run", engine, first, config=config)
    assert engine.running == 0
    asked = len(engine.requests)
    again = Trainee()
    rest = stream(tmp_path / "run", again, everything, config=config, resume=True)
    assert len({taken, *(group.plan.id for group in rest)}) == 4
    assert asked == 8
    assert len(again.requests) == 2
    check_whole_stream(tmp_path / "run", 4)
    assert stream(tmp_path / "run", Trainee(), everything, config=config, resume=True) == []


def check_whole_stream(folder: Path, groups: int) -> None:
    """Each group's advantages were written once, for each of its attempts."""
    counted = Counter(note.rollout for note in notes(folder, "advantage"))
    assert set(counted.values()) == {1}
    assert len({note.value["group"] for note in notes(folder, "advantage")}) == groups


def test_a_resumed_group_keeps_the_version_at_which_its_members_ended(tmp_path: Path) -> None:
    async def first(opened: RolloutStream) -> None:
        await settle()

    stream(tmp_path / "run", Trainee(), first, version=5)
    seen = stream(tmp_path / "run", Trainee(), everything, version=7, resume=True)
    assert {(each.finished, each.in_flight, each.in_queue) for group in seen for each in group.staleness.values()} == {
        (5, 5, 2)
    }


@given(seed=st.integers(0, 1 << 16))
@settings(max_examples=12, deadline=None)
def test_whatever_stops_it_no_group_is_handed_out_twice_and_none_is_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int
) -> None:
    folder, chance = tmp_path_factory.mktemp("stream") / "run", random.Random(seed)
    config = msgspec.structs.replace(TWO, tasks=5)
    seen: list[str] = []

    async def some(opened: RolloutStream) -> None:
        for _ in range(chance.randrange(4)):
            for _ in range(chance.randrange(60)):
                await asyncio.sleep(0)
            if (group := await anext(opened, None)) is not None:
                seen.append(group.plan.id)

    for attempt in range(4):
        stream(folder, Trainee(), some, config=config, resume=attempt > 0, queue=3, concurrency=chance.randrange(1, 6))
    seen += [each.plan.id for each in stream(folder, Trainee(), everything, config=config, resume=True)]
    assert len(seen) == len(set(seen)) == 5


def test_a_stopped_stream_is_a_run_that_can_be_finished_as_one(tmp_path: Path) -> None:
    async def first(opened: RolloutStream) -> None:
        await anext(opened)

    stream(tmp_path / "run", Trainee(), first, config=CONFIG)
    loaded = LoadedPolicy(ByMember(), SMOLLM.renderer)
    asyncio.run(run(CONFIG, tmp_path / "run", policy=loaded, resume=True))
    check_whole(tmp_path / "run")
    assert open_run(tmp_path / "run")


class Breaks(Silent):
    def ended(self, outcome: Outcome, *, late: bool) -> None:
        raise StoreError("the disk is full")


def test_what_stops_the_rollouts_reaches_whoever_asks(tmp_path: Path) -> None:
    async def asks(opened: RolloutStream) -> None:
        with pytest.raises(StoreError, match="disk is full"):
            await everything(opened)

    stream(tmp_path / "a", Trainee(), asks, progress=Breaks())

    async def leaves(opened: RolloutStream) -> None:
        await settle()

    with pytest.raises(StoreError, match="disk is full"):
        stream(tmp_path / "b", Trainee(), leaves, progress=Breaks())


def test_what_makes_no_sense_is_refused(tmp_path: Path) -> None:
    resample = msgspec.structs.replace(TWO, groups=GroupRules(resample=1))
    for more, why in (
        ({"queue": 0}, "at least 1 group"),
        ({"rounds": 0}, "at least once"),
        ({"rounds": None, "config": resample}, "one round only"),
        ({"concurrency": 0}, "at once"),
    ):
        with pytest.raises(ConfigError, match=why):
            stream(tmp_path / why, Trainee(), everything, **more)
    with pytest.raises(ConfigError, match="most is -1"):
        StalenessBound(most=-1)


def test_groups_without_a_signal_are_replaced_once_they_were_taken(tmp_path: Path) -> None:
    class Same(Trainee):
        async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
            said = await super().sample(prompt, sampling, session=session)
            return said if group_number(session) else says("right")

    config = msgspec.structs.replace(TWO, groups=GroupRules(resample=2))
    seen = stream(tmp_path / "run", Same(), everything, config=config)
    assert sorted((group.plan.task.id, group.zero_variance) for group in seen) == [
        ("quiz-0-0", True),
        ("quiz-0-1", False),
        ("quiz-0-2", False),
    ]


def test_workers_run_a_stream(tmp_path: Path) -> None:
    config = RunConfig(environment="tests.run.run_made:Double", policy=script(tmp_path / "m", "It is 8."), group=2)
    config = msgspec.structs.replace(config, tasks=2)

    async def main() -> list[ClosedGroup]:
        async with open_stream(config, tmp_path / "run", workers=1, bound=StalenessBound(most=1)) as opened:
            groups = await everything(opened)
            assert all(len(list(group.traces())) == 2 for group in groups)
            return groups

    groups = asyncio.run(asyncio.wait_for(main(), 60))
    assert len(groups) == 2
    assert all(group.zero_variance for group in groups)


def test_a_settlement_that_was_half_written_is_made_again(tmp_path: Path) -> None:
    """The advantages come last: without them the group was not handed out."""

    async def first(opened: RolloutStream) -> None:
        await settle()

    folder = tmp_path / "run"
    stream(folder, Trainee(), first, version=5)
    known = facts.stalenesses(RunReader(folder).annotations())
    taken = {name: msgspec.structs.replace(row, taken=6, in_queue=1, dropped=True) for name, row in known.items()}
    with AnnotationWriter(folder, PRODUCER) as writer:
        writer.write(
            Annotation(producer=PRODUCER, name=facts.STALENESS, rollout=name, value=msgspec.to_builtins(row))
            for name, row in taken.items()
        )
    seen = stream(folder, Trainee(), everything, version=7, resume=True)
    assert len(seen) == 2
    rows = facts.stalenesses(RunReader(folder).annotations())
    assert len(rows) == 4
    assert all((row.finished, row.in_queue, row.dropped) == (5, 2, False) for row in rows.values())


@given(seed=st.integers(0, 1 << 16), most=st.integers(0, 3), by=st.sampled_from(StaleBy), size=st.integers(1, 5))
@settings(max_examples=25, deadline=None)
def test_whatever_the_trainer_does_the_bound_holds_and_nothing_is_lost(
    tmp_path_factory: pytest.TempPathFactory, seed: int, most: int, by: StaleBy, size: int
) -> None:
    folder, chance = tmp_path_factory.mktemp("stream") / "run", random.Random(seed)
    engine, bound = Trainee(lambda session: chance.random() < 0.3), StalenessBound(most=most, by=by)
    config = msgspec.structs.replace(TWO, tasks=8, group=chance.randrange(1, 5))

    async def body(opened: RolloutStream) -> list[ClosedGroup]:
        seen: list[ClosedGroup] = []
        asyncio.get_running_loop().call_later(0.05, engine.gate.set)
        while (group := await anext(opened, None)) is not None:
            seen.append(group)
            for _ in range(chance.randrange(30)):
                await asyncio.sleep(0)
            if chance.random() < 0.6:
                engine.version = opened.version + chance.randrange(1, 3)
                opened.advance(engine.version)
        stats = opened.stats()
        assert (stats.open, stats.waiting) == (0, 0)
        assert stats.delivered + stats.empty == config.tasks
        return seen

    seen = stream(folder, engine, body, config=config, bound=bound, queue=size, concurrency=chance.randrange(1, 9))
    assert len({group.plan.id for group in seen}) == len(seen)
    for group in seen:
        assert group.values
        assert sum(group.values.values()) == pytest.approx(0)
        for trace in group.traces():
            behind = versions_of(trace).behind(group.version, by)
            assert behind is not None
            assert behind <= most
            assert group.staleness[trace.id].total == pytest.approx(behind)
    reader = RunReader(folder)
    fates, given_ = facts.dispositions(reader.annotations()), facts.advantages(reader.annotations())
    handed_out = {rollout for group in seen for rollout in group.values}
    assert {rollout for rollout, fate in fates.items() if fate.votes} == handed_out
    assert {rollout for rollout, fact in given_.items() if fact.advantage is not None} == handed_out
    assert set(fates) == set(reader.rollouts())


def test_a_stream_needs_no_client_of_an_engine() -> None:
    code = "import sys; sys.modules['aiohttp'] = None; from rollbook import open_stream; print(open_stream.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "open_stream\n"), done.stderr
