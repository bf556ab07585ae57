"""Runs into real folders: groups close once, a resume makes up for what is missing and for nothing else."""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rollbook.envs import Environment
from rollbook.errors import ConfigError, RunLocked, StoreError, UsageError
from rollbook.rollout import Limits, LoadedPolicy
from rollbook.run import RunConfig, RunOutcome, open_run, report, run
from rollbook.store import RunReader, RunWriter
from rollbook.trace import EndingKind, EndingRules, Fate, Reason, Retry, Task, Trace, facts
from rollbook.worlds import register
from tests.run.run_made import CALL, loaded

CONFIG = RunConfig(environment="test-double", tasks=2, group=3)


class Short(Environment):
    """Has one task less than it is asked for, or one twice."""

    def __init__(self, twice: bool = False) -> None:
        self.twice = twice

    def tasks(self, count: int, seed: int = 0) -> list[Task]:
        if self.twice:
            return [Task(id="same", prompt="Go.")] * count
        return [Task(id=str(index), prompt="Go.") for index in range(count - 1)]


class Moving(Environment):
    """Its tasks are not the same the next time."""

    made = 0

    def tasks(self, count: int, seed: int = 0) -> list[Task]:
        Moving.made += 1
        return [Task(id=f"{Moving.made}-{index}", prompt="Go.") for index in range(count)]

    async def score(self, trace: Trace) -> float:
        return 1.0


register("test-short", Short)
register("test-moving", Moving)


class Watch:
    """Progress that remembers, and may stop the run."""

    def __init__(self, stop_after: int | None = None) -> None:
        self.plans: list[tuple[int, int]] = []
        self.traces: list[Trace] = []
        self.stop_after = stop_after

    def planned(self, members: int, done: int) -> None:
        self.plans.append((members, done))

    def finished(self, trace: Trace) -> None:
        self.traces.append(trace)
        if len(self.traces) == self.stop_after:
            raise StoreError("the disk is full, says this test")


def go(config: RunConfig, folder: Path, policy: LoadedPolicy, **how: object) -> RunOutcome:
    return asyncio.run(run(config, folder, loaded=policy, **how))  # type: ignore[arg-type]


@pytest.fixture
def good(tmp_path: Path) -> LoadedPolicy:
    return loaded(tmp_path / "m", CALL, "It is 8.")


def members(source: RunReader) -> Counter[tuple[str, int]]:
    """How often each member has an attempt that was not retried."""
    fates = facts.dispositions(source.annotations())
    return Counter((row.group, row.member) for row in source.summaries() if fates[row.rollout].fate is not Fate.RETRIED)


def whole(source: RunReader, config: RunConfig) -> None:
    """Every member counts exactly once, and every group is closed."""
    counted = members(source)
    assert set(counted.values()) == {1}
    assert len(counted) == config.tasks * config.group
    delivered = facts.advantages(source.annotations())
    assert {delivered[rollout].scheduled for rollout in source.rollouts()} == {config.group}


def test_a_run_ends_with_each_member_once_and_its_groups_closed(tmp_path: Path, good: LoadedPolicy) -> None:
    watch = Watch()
    outcome = go(CONFIG, tmp_path / "run", good, progress=watch)
    source = open_run(tmp_path / "run")
    whole(source, CONFIG)
    assert (watch.plans, len(watch.traces)) == ([(6, 0)], 6)
    assert (outcome.interrupted, outcome.recovery.clean) == ((), True)
    assert {trace.head.config["group"] for trace in source.traces()} == {3}


def test_a_finished_run_is_not_run_again(tmp_path: Path, good: LoadedPolicy) -> None:
    go(CONFIG, tmp_path / "run", good)
    before = report(open_run(tmp_path / "run"))
    watch = Watch()
    go(CONFIG, tmp_path / "run", good, resume=True, progress=watch)
    assert (watch.plans, watch.traces) == ([(6, 6)], [])
    assert report(open_run(tmp_path / "run")) == before


@pytest.mark.parametrize("concurrency", [1, 4])
@pytest.mark.parametrize("stop_after", [1, 3, 5])
def test_a_run_that_broke_off_goes_on_where_it_was(tmp_path: Path, stop_after: int, concurrency: int) -> None:
    slow = loaded(tmp_path / "m", CALL, "It is 8.", delay=0.002)
    with pytest.raises(StoreError, match="says this test"):
        go(CONFIG, tmp_path / "run", slow, progress=Watch(stop_after), concurrency=concurrency)
    kept = {trace.id: trace.ending for trace in open_run(tmp_path / "run").traces()}
    done = {rollout for rollout, ending in kept.items() if ending is not None and ending.kind is not EndingKind.ERROR}
    assert len(done) >= stop_after
    broken = {ending.reason for rollout, ending in kept.items() if rollout not in done and ending is not None}
    assert broken <= {Reason.INTERRUPTED}
    watch = Watch()
    go(CONFIG, tmp_path / "run", slow, resume=True, progress=watch, concurrency=concurrency)
    source = open_run(tmp_path / "run")
    whole(source, CONFIG)
    assert {trace.id for trace in watch.traces}.isdisjoint(done)
    assert {source.get(rollout).ending for rollout in done} == {kept[rollout] for rollout in done}


def test_cancelling_keeps_what_is_finished_and_a_resume_makes_up_the_rest(tmp_path: Path) -> None:
    slow = loaded(tmp_path / "m", CALL, "It is 8.", delay=0.05)

    async def cancel_soon() -> None:
        task = asyncio.create_task(run(CONFIG, tmp_path / "run", loaded=slow, concurrency=2))
        await asyncio.sleep(0.18)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel_soon())
    reasons = {row.reason for row in open_run(tmp_path / "run").summaries()}
    assert Reason.INTERRUPTED in reasons
    assert Reason.CANCELLED not in reasons
    go(CONFIG, tmp_path / "run", slow, resume=True)
    whole(open_run(tmp_path / "run"), CONFIG)


def test_what_a_dead_process_left_in_flight_is_sealed_and_made_again(tmp_path: Path, good: LoadedPolicy) -> None:
    go(CONFIG, tmp_path / "run", good)
    copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "run", copy)
    for path in [*(copy / "segments").iterdir(), *(copy / "annotations").iterdir()]:
        path.unlink()
    source = open_run(tmp_path / "run")
    left = source.get(source.rollouts()[0])
    running = Trace(left.head, graph=left.graph, calls=left.calls)
    with RunWriter.open(copy) as writer:
        writer.begin(running)
        writer.turn(running)
    outcome = go(CONFIG, copy, good, resume=True)
    assert outcome.interrupted == (left.id,)
    whole(open_run(copy), CONFIG)
    sealed = open_run(copy).get(left.id)
    assert sealed.ending is not None
    assert (sealed.ending.reason, len(sealed.graph)) == (Reason.INTERRUPTED, len(left.graph))


def test_retries_are_attempts_of_their_own_and_do_not_vote(tmp_path: Path) -> None:
    flaky = loaded(tmp_path / "m", Reason.ENGINE_TIMEOUT)
    rules = EndingRules({Reason.ENGINE_TIMEOUT: Retry(1)})
    config = RunConfig(environment="test-double", tasks=1, group=2, rules=rules)
    go(config, tmp_path / "run", flaky)
    source = open_run(tmp_path / "run")
    assert sorted((row.member, row.attempt) for row in source.summaries()) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    whole(source, config)
    (group,) = report(source).groups
    assert (group.scheduled, group.used, group.mean) == (2, 0, None)


def test_the_same_seed_gives_the_same_sampling_in_every_run(tmp_path: Path, good: LoadedPolicy) -> None:
    for name in ("one", "two"):
        go(CONFIG, tmp_path / name, good)
    seeds = [
        sorted(call.sampling.seed or 0 for trace in open_run(tmp_path / name).traces() for call in trace.calls)
        for name in ("one", "two")
    ]
    assert seeds[0] == seeds[1]
    assert len(set(seeds[0])) == len(seeds[0])


def test_a_changed_configuration_is_refused_unless_told(tmp_path: Path, good: LoadedPolicy) -> None:
    go(CONFIG, tmp_path / "run", good)
    changed = msgspec.structs.replace(CONFIG, limits=Limits(max_turns=3), tasks=3)
    with pytest.raises(ConfigError, match=r"(?s)limits.max_turns: 16 -> 3.*tasks: 2 -> 3.*--allow-changed"):
        go(changed, tmp_path / "run", good, resume=True)
    go(changed, tmp_path / "run", good, resume=True, allow_changed=True)
    whole(open_run(tmp_path / "run"), changed)
    go(changed, tmp_path / "run", good, resume=True)


@pytest.mark.parametrize(
    "change", [{"seed": 1}, {"group": 4}, {"environment": "copy"}, {"options": {"right": "9"}}, {"tasks": 1}]
)
def test_what_decides_the_rollouts_of_a_run_never_changes(
    tmp_path: Path, good: LoadedPolicy, change: dict[str, object]
) -> None:
    go(CONFIG, tmp_path / "run", good)
    with pytest.raises(ConfigError, match="another folder"):
        go(
            msgspec.structs.replace(CONFIG, **change),
            tmp_path / "run",
            good,
            resume=True,
            allow_changed=True,
        )


def test_tasks_that_are_not_the_same_any_more_are_refused(tmp_path: Path, good: LoadedPolicy) -> None:
    config = RunConfig(environment="test-moving", tasks=1, group=1)
    go(config, tmp_path / "run", good)
    with pytest.raises(ConfigError, match="it has changed since"):
        go(config, tmp_path / "run", good, resume=True)


@pytest.mark.parametrize(("options", "says"), [({}, "gives 1 tasks"), ({"twice": True}, "two tasks the id 'same'")])
def test_an_environment_with_too_few_or_equal_tasks_is_refused(
    tmp_path: Path, good: LoadedPolicy, options: dict[str, bool], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        go(RunConfig(environment="test-short", options=options, tasks=2), tmp_path / "run", good)
    assert not (tmp_path / "run").exists()


def test_nothing_runs_without_room_for_one_rollout(tmp_path: Path, good: LoadedPolicy) -> None:
    with pytest.raises(ConfigError, match="at least 1"):
        go(CONFIG, tmp_path / "run", good, concurrency=0)


def test_a_folder_that_is_taken_is_refused_and_left_alone(tmp_path: Path, good: LoadedPolicy) -> None:
    go(CONFIG, tmp_path / "run", good)
    with pytest.raises(ConfigError, match="--resume"):
        go(CONFIG, tmp_path / "run", good)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="is not empty"):
        go(CONFIG, tmp_path / "other", good)
    assert [path.name for path in (tmp_path / "other").iterdir()] == ["notes.txt"]
    with pytest.raises(UsageError, match="is a file"):
        go(CONFIG, tmp_path / "other" / "notes.txt", good)


def test_two_processes_do_not_write_into_one_run(tmp_path: Path, good: LoadedPolicy) -> None:
    go(CONFIG, tmp_path / "run", good)
    with RunWriter.open(tmp_path / "run"), pytest.raises(RunLocked):
        go(CONFIG, tmp_path / "run", good, resume=True)


def test_traces_that_no_run_made_are_not_resumed(tmp_path: Path, good: LoadedPolicy) -> None:
    RunWriter.create(tmp_path / "run", {"made by": "hand"}).close()
    with pytest.raises(ConfigError, match="no run of this kind"):
        go(CONFIG, tmp_path / "run", good, resume=True)
