"""A whole run: every member once, groups closed once, resumed after anything, refused where it would mix things."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.envs import StepResult
from rollbook.errors import ConfigError, RollbookError, RunLocked, StoreError, UsageError, told
from rollbook.policy import Completion, TokenIds
from rollbook.rewards import Outcome
from rollbook.rollout import Limits, LoadedPolicy
from rollbook.rollout.pool import Closed
from rollbook.rollout.snapshot import Snapshot
from rollbook.run import RunConfig, RunOptions, RunOutcome, differences, run
from rollbook.run.live_run import RunRequest
from rollbook.run.recording import Silent
from rollbook.store import RecoveryReport, RunReader, RunWriter
from rollbook.store.notes import read_annotations
from rollbook.trace import (
    Annotation,
    EndingRules,
    Fate,
    Finish,
    Message,
    Reason,
    Retry,
    RolloutFailure,
    Sampling,
    Summary,
    Task,
    Trace,
    facts,
    summarise,
)
from rollbook.worlds import register
from tests.rollout.made import SMOLLM, Engine, Talk, says

ROOT = Path(__file__).parents[2]


class Quiz(Talk):
    """One question; `right` scores 1. `short`: how many tasks are missing, `shift`: where they begin."""

    def __init__(self, short: int = 0, shift: int = 0, twice: bool = False) -> None:
        super().__init__()
        self.short, self.shift, self.twice = short, shift, twice

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        made = range(self.shift, self.shift + count - self.short)
        return [Task(id=f"quiz-{seed}-{0 if self.twice else index}", prompt=f"Say {index}.") for index in made]

    async def score(self, trace: Trace) -> float:
        self.log.append("score")
        return float(trace.text == "right")


class Moody(Quiz):
    """Its tasks are whatever the test says just now."""

    now = 0

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"moody-{index + Moody.now}", prompt="Say.") for index in range(count)]


class Odd(Quiz):
    """Its tasks are what the test says."""

    given: Any = None

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return Odd.given()


register("runner-odd", Odd)
register("runner-quiz", Quiz)
register("runner-moody", Moody)
CONFIG = RunConfig(environment="runner-quiz", tasks=3, group=4)


class ByMember(Engine):
    """Even members are right. Fails with `failure` at its `broken`-th request, and stops for good at `stuck`."""

    def __init__(self, *, broken: int = -1, failure: Exception | None = None, stuck: int = 1 << 30) -> None:
        super().__init__([says("x")])
        self.broken, self.failure, self.stuck = broken, failure, stuck
        self.waiting = asyncio.Event()
        self.log: list[str] = []

    async def start(self) -> None:
        self.log.append("start")

    async def close(self) -> None:
        self.log.append("close")

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        await super().sample(prompt, sampling, session=session)
        number = len(self.requests)
        await asyncio.sleep(0)
        if self.failure is not None and number == self.broken + 1:
            raise self.failure
        if number > self.stuck:
            self.waiting.set()
            await asyncio.sleep(1000)
        member = int(session.rpartition("-")[2].partition(".")[0])
        return says("wrong" if member % 2 else "right")


def go(folder: Path, engine: Engine | None = None, config: RunConfig = CONFIG, **more: Any) -> RunOutcome:
    loaded = LoadedPolicy(engine or ByMember(), SMOLLM.renderer)
    return asyncio.run(run(config, folder, policy=loaded, **more))


def rows(folder: Path) -> list[Summary]:
    return list(RunReader(folder, strict=True).summaries())


def notes(folder: Path, name: str) -> list[Annotation]:
    """Every annotation of a name that was ever written, not folded."""
    return [note for note in read_annotations(folder, RecoveryReport()) if note.name == name]


def advantages_of(folder: Path) -> dict[tuple[str, int], float | None]:
    reader = RunReader(folder)
    given = facts.advantages(reader.annotations())
    return {
        (row.task, row.member): given[row.rollout].advantage
        for row in reader.summaries()
        if given[row.rollout].advantage is not None
    }


def check_whole(folder: Path, config: RunConfig = CONFIG) -> None:
    """Each member has one attempt that votes; each group closed once, and it keeps all its attempts."""
    found = rows(folder)
    assert max(Counter(row.rollout for row in found).values()) == 1
    fates = facts.dispositions(RunReader(folder).annotations())
    used = [(row.task, row.member) for row in found if fates[row.rollout].fate is Fate.USED]
    assert len(used) == len(set(used)) == config.tasks * config.group
    closed = notes(folder, "advantage")
    assert Counter(note.rollout for note in closed) == Counter(row.rollout for row in found)


# Fresh


class Watches:
    def __init__(self) -> None:
        self.plan: list[tuple[int, int]] = []
        self.done: list[str] = []
        self.turns: list[str] = []
        self.groups: list[str] = []

    def planned(self, members: int, done: int) -> None:
        self.plan.append((members, done))

    def turn(self, trace: Trace) -> None:
        assert not trace.sealed
        self.turns.append(trace.id)

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        assert not late
        self.done.append(outcome.rollout)

    def closed(self, closed: Closed) -> None:
        self.groups.append(closed.plan.id)

    def snapshot(self, snapshot: Snapshot) -> None:
        pass


@pytest.mark.parametrize("concurrency", [1, 3, 100])
def test_a_fresh_run_does_every_member_once(tmp_path: Path, concurrency: int) -> None:
    watches, engine = Watches(), ByMember()
    outcome = go(tmp_path / "run", engine, progress=watches, concurrency=concurrency)
    check_whole(tmp_path / "run")
    assert (outcome.interrupted, outcome.recovery.clean, outcome.config) == ((), True, CONFIG)
    assert watches.plan == [(12, 0)]
    assert sorted(watches.done) == sorted(row.rollout for row in rows(tmp_path / "run"))
    assert set(advantages_of(tmp_path / "run").values()) == {0.5, -0.5}
    assert engine.log == ["start", "close"]


def test_every_trace_carries_run_group_and_configuration(tmp_path: Path) -> None:
    go(tmp_path / "run")
    traces = list(RunReader(tmp_path / "run").traces())
    (run_id,) = {trace.head.run for trace in traces}
    assert {trace.head.group for trace in traces} == {f"{run_id}-{number:04d}" for number in range(3)}
    assert all(trace.head.config == CONFIG.plain() for trace in traces)


def test_the_same_seed_gives_the_same_requests_in_another_folder(tmp_path: Path) -> None:
    def asked(folder: str, config: RunConfig) -> list[tuple[list[int], int | None]]:
        engine = ByMember()
        go(tmp_path / folder, engine, config)
        return sorted((each.prompt, each.sampling.seed) for each in engine.requests)

    first = asked("a", CONFIG)
    assert asked("b", CONFIG) == first
    assert len({seed for _, seed in first}) == 12
    other = asked("c", msgspec.structs.replace(CONFIG, seed=1))
    assert not {seed for _, seed in first} & {seed for _, seed in other}


@pytest.mark.parametrize("concurrency", [0, -1])
def test_nothing_at_once_is_refused(tmp_path: Path, concurrency: int) -> None:
    with pytest.raises(UsageError, match="at once"):
        go(tmp_path / "run", concurrency=concurrency)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("options", [{"short": 1}, {"twice": True}, {"unknown": 1}])
def test_wrong_tasks_and_options_are_refused_before_a_folder_is_made(tmp_path: Path, options: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        go(tmp_path / "run", config=msgspec.structs.replace(CONFIG, options=options))
    assert not (tmp_path / "run").exists()


class Wanders(Quiz):
    """It changes the working folder."""

    async def step(self, reply: Message) -> StepResult | None:
        os.chdir("elsewhere")
        return await super().step(reply)


register("runner-wanders", Wanders)


def test_an_environment_may_change_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "elsewhere" / "elsewhere").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    go(Path("run"), config=msgspec.structs.replace(CONFIG, environment="runner-wanders", tasks=1, group=2))
    assert len(RunReader(tmp_path / "run")) == 2
    assert [each.name for each in (tmp_path / "elsewhere").iterdir()] == ["elsewhere"]


def leave() -> None:
    sys.exit(0)


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (lambda: None, "cannot give its tasks: TypeError"),
        (leave, "cannot give its tasks: SystemExit: 0"),
        (lambda: {}["q"], "cannot give its tasks: KeyError: 'q'"),
        (lambda: [1, 2, 3], "tasks that cannot be kept: .*got `int`"),
        (lambda: [Task(id=i, prompt="p") for i in range(3)], "tasks that cannot be kept: .*got `int`"),  # pyright: ignore
        (
            lambda: [Task(id=str(i), prompt="p", target=object()) for i in range(3)],
            "tasks that cannot be kept: .*object",
        ),
    ],
)
def test_tasks_that_are_none_are_refused_before_a_folder_is_made(tmp_path: Path, given: Any, problem: str) -> None:
    Odd.given = staticmethod(given)
    with pytest.raises(ConfigError, match=problem):
        go(tmp_path / "run", config=msgspec.structs.replace(CONFIG, environment="runner-odd"))
    assert not (tmp_path / "run").exists()


def test_every_option_is_told_and_no_other_is_taken(tmp_path: Path) -> None:
    options = RunOptions.__annotations__.keys()
    assert options == {field.name for field in dataclasses.fields(RunRequest)} - {"config", "folder", "rounds"}
    assert [name for name in options if f"`{name}`" not in (run.__doc__ or "")] == []
    with pytest.raises(TypeError, match="worker"):
        go(tmp_path / "run", worker=2)
    assert not (tmp_path / "run").exists()


def test_errors_are_retried_and_have_no_vote(tmp_path: Path) -> None:
    engine = ByMember(broken=2, failure=RolloutFailure(Reason.SANDBOX_LOST, "host"))
    go(tmp_path / "run", engine, concurrency=1)
    check_whole(tmp_path / "run")
    assert len(rows(tmp_path / "run")) == 13
    assert set(advantages_of(tmp_path / "run").values()) == {0.5, -0.5}


# Resume


def stop_after(folder: Path, requests: int, config: RunConfig = CONFIG) -> None:
    """Cancel a run once so many requests were answered."""

    async def scenario() -> None:
        engine = ByMember(stuck=requests)
        task = asyncio.create_task(run(config, folder, policy=LoadedPolicy(engine, SMOLLM.renderer), concurrency=3))
        await engine.waiting.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert asyncio.all_tasks() == {asyncio.current_task()}, "something is left running"

    asyncio.run(scenario())


@pytest.mark.parametrize("requests", [0, 1, 5, 9, 11])
def test_a_stopped_run_goes_on_and_comes_to_the_same(tmp_path: Path, requests: int) -> None:
    go(tmp_path / "calm")
    stop_after(tmp_path / "run", requests)
    before = {row.rollout: row for row in rows(tmp_path / "run")}
    left = [row for row in before.values() if row.reason is Reason.INTERRUPTED]
    assert len(before) - len(left) == requests
    watches = Watches()
    go(tmp_path / "run", resume=True, progress=watches)
    assert watches.plan == [(12, requests)]
    assert len(watches.done) == 12 - requests
    check_whole(tmp_path / "run")
    after = {row.rollout: row for row in rows(tmp_path / "run")}
    assert {rollout: after[rollout] for rollout in before} == before, "what was finished stands as it was"
    assert advantages_of(tmp_path / "run") == advantages_of(tmp_path / "calm")


def test_a_finished_run_has_nothing_to_do_and_tells_the_same(tmp_path: Path) -> None:
    """D13: whatever a run tells of itself is the same before and after."""
    rules = Limits(max_generation=len(says("wrong").token_ids) - 1)
    config = msgspec.structs.replace(CONFIG, limits=rules)
    engine = Engine([cut_short()])
    go(tmp_path / "run", engine, config)
    before = rows(tmp_path / "run")
    assert {row.truncated for row in before} == {True}
    assert before == [summarise(trace) for trace in RunReader(tmp_path / "run").traces()]
    told = RunReader(tmp_path / "run").annotations()
    untouched = ByMember()
    outcome = go(tmp_path / "run", untouched, config, resume=True)
    assert untouched.requests == []
    assert rows(tmp_path / "run") == before
    assert RunReader(tmp_path / "run").annotations() == told
    assert outcome.interrupted == ()


def cut_short() -> Completion:
    whole = says("wrong")
    return dataclasses.replace(
        whole, token_ids=whole.token_ids[:-1], logprobs=whole.logprobs[:-1], finish=Finish.LENGTH
    )


def test_a_disposition_or_a_closing_that_a_crash_lost_is_made_up_for(tmp_path: Path) -> None:
    go(tmp_path / "run")
    expected = advantages_of(tmp_path / "run")
    (stream,) = (tmp_path / "run" / "annotations").glob("*.ann")
    data = stream.read_bytes()
    for size in range(0, len(data), 97):
        stream.write_bytes(data[:size])
        untouched = ByMember()
        go(tmp_path / "run", untouched, resume=True)
        assert untouched.requests == []
        assert advantages_of(tmp_path / "run") == expected
        check_whole(tmp_path / "run")


def test_what_was_in_flight_is_interrupted_and_runs_again(tmp_path: Path) -> None:
    """A writer that was let go of in the middle, as by a kill."""
    stop_after(tmp_path / "run", 2)
    reader = RunReader(tmp_path / "run")
    taken = next(row for row in reader.summaries() if row.reason is Reason.INTERRUPTED)
    head = reader.get(taken.rollout).head
    writer = RunWriter.open(tmp_path / "run")
    again = msgspec.structs.replace(head, rollout=f"{head.rollout}.7", attempt=7)
    writer.begin(Trace(again))
    os.close(writer._lock._descriptor)
    outcome = go(tmp_path / "run", resume=True)
    assert outcome.interrupted == (again.rollout,)
    check_whole(tmp_path / "run")
    last = [row.attempt for row in rows(tmp_path / "run") if (row.group, row.member) == (taken.group, taken.member)]
    assert sorted(last) == [0, 7, 8], "two attempts are never spliced, and no id is used twice"


def test_another_producers_advantages_close_no_group(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", 2)
    row = rows(tmp_path / "run")[0]
    with RunWriter.open(tmp_path / "run") as writer:
        writer.annotate([Annotation(producer="trainer", name="advantage", rollout=row.rollout, value=0.25)])
    go(tmp_path / "run", resume=True)
    assert len([note for note in notes(tmp_path / "run", "advantage") if note.producer == "rewards"]) == len(
        rows(tmp_path / "run")
    )


# What is refused


def test_a_changed_configuration_is_refused_with_the_list_and_nothing_is_touched(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", 4)
    before = {path: path.read_bytes() for path in (tmp_path / "run").rglob("*") if path.is_file()}
    changed = msgspec.structs.replace(
        CONFIG,
        limits=Limits(max_turns=3),
        sampling=Sampling(temperature=0.5),
        rules=EndingRules().override({Reason.MAX_TURNS: Retry(1)}),
    )
    with pytest.raises(ConfigError) as refused:
        go(tmp_path / "run", config=changed, resume=True)
    for line in (
        "limits.max_turns: 16 -> 3",
        "sampling.temperature: 1.0 -> 0.5",
        "rules.rows.max_turns",
        "--allow-changed",
    ):
        assert line in str(refused.value)
    assert {path: path.read_bytes() for path in before} == before
    go(tmp_path / "run", config=changed, resume=True, allow_changed=True)
    check_whole(tmp_path / "run")
    assert differences(RunReader(tmp_path / "run").manifest.config["asked"], changed.plain()) == []
    with pytest.raises(ConfigError):
        go(tmp_path / "run", resume=True)


@pytest.mark.parametrize("change", [{"seed": 1}, {"options": {"shift": 1}}, {"group": 5}, {"tasks": 2}])
def test_what_groups_compare_never_changes(tmp_path: Path, change: dict[str, Any]) -> None:
    stop_after(tmp_path / "run", 4)
    with pytest.raises(ConfigError):
        go(tmp_path / "run", config=msgspec.structs.replace(CONFIG, **change), resume=True, allow_changed=True)


def test_more_tasks_are_more_groups(tmp_path: Path) -> None:
    go(tmp_path / "run")
    before = advantages_of(tmp_path / "run")
    more = msgspec.structs.replace(CONFIG, tasks=5)
    go(tmp_path / "run", config=more, resume=True, allow_changed=True)
    check_whole(tmp_path / "run", more)
    assert before.items() <= advantages_of(tmp_path / "run").items()


def test_an_environment_that_changed_its_tasks_is_refused(tmp_path: Path) -> None:
    config = msgspec.structs.replace(CONFIG, environment="runner-moody")
    stop_after(tmp_path / "run", 4, config)
    Moody.now = 1
    try:
        with pytest.raises(ConfigError, match="moody"):
            go(tmp_path / "run", config=config, resume=True)
    finally:
        Moody.now = 0
    go(tmp_path / "run", config=config, resume=True)
    check_whole(tmp_path / "run", config)


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        go(tmp_path)
    with pytest.raises(UsageError):
        go(tmp_path, resume=True)
    with pytest.raises(UsageError):
        go(tmp_path / "missing", resume=True)
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_a_folder_of_traces_that_no_run_made_is_refused(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run", {"imported": True}).close()
    with pytest.raises(ConfigError):
        go(tmp_path / "run", resume=True)
    RunWriter.open(tmp_path / "run").close()


@pytest.mark.parametrize("tasks", ["3", None, 3.5])
def test_a_manifest_that_was_altered_is_refused(tmp_path: Path, tasks: Any) -> None:
    go(tmp_path / "run")
    path = tmp_path / "run" / "run.json"
    plain = json.loads(path.read_text())
    plain["config"]["asked"]["tasks"] = tasks
    path.write_text(json.dumps(plain))
    with pytest.raises(ConfigError, match=r"is damaged: it names .* tasks"):
        go(tmp_path / "run", resume=True)


def test_a_creation_that_was_killed_in_the_middle_can_be_made_again(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / ".run.json.tmp").write_text("{")
    go(tmp_path / "run")
    check_whole(tmp_path / "run")


def test_two_runs_into_one_folder(tmp_path: Path) -> None:
    async def scenario() -> None:
        engine = ByMember(stuck=0)
        first = asyncio.create_task(run(CONFIG, tmp_path / "run", policy=LoadedPolicy(engine, SMOLLM.renderer)))
        await engine.waiting.wait()
        for resume, error in ((False, UsageError), (True, RunLocked)):
            with pytest.raises(error):
                await run(CONFIG, tmp_path / "run", policy=LoadedPolicy(ByMember(), SMOLLM.renderer), resume=resume)
        first.cancel()
        with pytest.raises(asyncio.CancelledError):
            await first

    asyncio.run(scenario())
    go(tmp_path / "run", resume=True)
    check_whole(tmp_path / "run")


@pytest.mark.parametrize("error", [StoreError("No space left on device"), UsageError("the engine is gone")])
def test_what_breaks_a_run_is_raised_bare_and_the_run_goes_on_later(tmp_path: Path, error: UsageError) -> None:
    class Breaks(Watches):
        def ended(self, outcome: Outcome, *, late: bool) -> None:
            super().ended(outcome, late=late)
            if len(self.done) == 4:
                raise error

    with pytest.raises(type(error), match=str(error)):
        go(tmp_path / "run", progress=Breaks(), concurrency=3)
    assert {row.reason for row in rows(tmp_path / "run")} <= {Reason.FINAL_ANSWER, Reason.INTERRUPTED}
    go(tmp_path / "run", resume=True)
    check_whole(tmp_path / "run")


def test_an_engine_that_does_not_start_leaves_a_run_that_can_be_resumed(tmp_path: Path) -> None:
    class Dead(ByMember):
        async def start(self) -> None:
            raise UsageError("no GPU; use the small model")

    with pytest.raises(UsageError, match="no GPU"):
        go(tmp_path / "run", Dead())
    go(tmp_path / "run", resume=True)
    check_whole(tmp_path / "run")


# Killed


def test_a_few_kills_lose_nothing() -> None:
    """Real ones; `tests/slow/run_storm.py` does hundreds."""
    command = [sys.executable, "-m", "tests.slow.run_storm", "6", "11", "12"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads(done.stdout)
    assert report["problems"] == []
    assert report["kills"] == 6
    assert report["acknowledged_turns"] > 0


class Blocks(Silent):
    """Puts a folder where the account of resources is to be written, then fails."""

    def __init__(self, folder: Path, failure: Exception) -> None:
        self.folder, self.failure = folder, failure

    def closed(self, closed: Closed) -> None:
        (self.folder / "resources.json.new").mkdir()
        raise self.failure


def test_what_stopped_a_run_is_told_and_what_failed_behind_it_beside_it(tmp_path: Path) -> None:
    with pytest.raises(UsageError) as raised:
        go(tmp_path / "run", progress=Blocks(tmp_path / "run", UsageError("no more of this")))
    first, _, second = told(raised.value).partition("\n")
    assert first == "no more of this"
    assert second.startswith("Behind it, ")
    assert "resources.json cannot be written" in second


class NeverTold(Silent):
    """Cannot show how things stand."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()

    def snapshot(self, snapshot: Snapshot) -> None:
        self.asked.set()
        raise ValueError("the screen is gone")


class Waits(ByMember):
    """Its replies come when `open` is set."""

    def __init__(self, gate: asyncio.Event) -> None:
        super().__init__()
        self.gate = gate

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        await self.gate.wait()
        return await super().sample(prompt, sampling, session=session)


def test_progress_that_cannot_be_told_stops_the_run_and_what_ended_is_kept(tmp_path: Path) -> None:
    progress = NeverTold()
    engine = Waits(progress.asked)
    with pytest.raises(RollbookError, match="how the run stands cannot be told: ValueError: the screen is gone"):
        go(tmp_path / "run", engine, progress=progress, concurrency=1)
    assert len(engine.requests) == 1
    go(tmp_path / "run", resume=True)
    check_whole(tmp_path / "run")
