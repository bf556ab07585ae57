"""Groups of real runs: refilled, too few, enough, out of time, without a signal; each also stopped in the middle and
gone on with, which comes to the same."""

from __future__ import annotations

import asyncio
import shutil
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ConfigError
from rollbook.policy import Completion, TokenIds
from rollbook.rewards import Outcome
from rollbook.rollout import GroupRules, LoadedPolicy
from rollbook.rollout.pool import GROUP_CLOSED, LATE, Closed
from rollbook.run import RunConfig, open_run, run, selection, standing
from rollbook.run.planning import closed_empty
from rollbook.run.recording import Silent
from rollbook.store import RunReader
from rollbook.trace import Disposition, Drop, EndingRules, Fate, Reason, RolloutFailure, Sampling, facts
from tests.rollout.made import SMOLLM, Engine, says
from tests.run.test_runner import notes

Mood = Callable[[int, int], str]
"""Of group and member: what the engine makes of it."""


class Moods(Engine):
    """Says right or wrong, loses the rollout, or hangs, as its mood is; stops for good at request `stop`."""

    def __init__(self, mood: Mood, stop: int = 1 << 30) -> None:
        super().__init__([says("x")])
        self.mood, self.stop = mood, stop
        self.stopped = asyncio.Event()

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        await super().sample(prompt, sampling, session=session)
        if len(self.requests) > self.stop:
            self.stopped.set()
            await asyncio.sleep(1000)
        await asyncio.sleep(0.01)
        _, group, member = session.split("-")
        mood = self.mood(int(group), int(member.partition(".")[0]))
        if mood == "lost":
            raise RolloutFailure(Reason.SANDBOX_LOST, "as its mood was")
        if mood == "stuck":
            await asyncio.sleep(1000)
        return says(mood)


@dataclass(frozen=True)
class Case:
    rules: GroupRules
    mood: Mood
    votes: dict[int, dict[int, float]]
    """By group and member."""


def right_or_wrong(member: int) -> str:
    return "wrong" if member % 2 else "right"


CASES = {
    "refill": Case(
        GroupRules(refill=1),
        lambda group, member: "lost" if (group, member) == (0, 1) else right_or_wrong(member),
        {0: {0: 1, 2: 1, 3: 0, 4: 1}, 1: {0: 1, 1: 0, 2: 1, 3: 0}},
    ),
    "the replacement is lost too": Case(
        GroupRules(refill=1),
        lambda group, member: "lost" if group == 0 and member in (1, 4) else right_or_wrong(member),
        {0: {0: 1, 2: 1, 3: 0}, 1: {0: 1, 1: 0, 2: 1, 3: 0}},
    ),
    "min_used": Case(
        GroupRules(min_used=3),
        lambda group, member: "lost" if group == 0 and member > 1 else right_or_wrong(member),
        {0: {}, 1: {0: 1, 1: 0, 2: 1, 3: 0}},
    ),
    "enough": Case(
        GroupRules(enough=2),
        lambda group, member: "stuck" if member > 1 else right_or_wrong(member),
        {0: {0: 1, 1: 0}, 1: {0: 1, 1: 0}},
    ),
    "deadline": Case(
        GroupRules(deadline=0.8),
        lambda group, member: "stuck" if (group, member) == (1, 3) else right_or_wrong(member),
        {0: {0: 1, 1: 0, 2: 1, 3: 0}, 1: {0: 1, 1: 0, 2: 1}},
    ),
    "resample": Case(
        GroupRules(resample=3),
        lambda group, member: "right" if group in (0, 2) else right_or_wrong(member),
        {0: dict.fromkeys(range(4), 1.0), 2: dict.fromkeys(range(4), 1.0)}
        | {group: {0: 1, 1: 0, 2: 1, 3: 0} for group in (1, 3)},
    ),
}


def config_of(case: Case) -> RunConfig:
    rules = EndingRules().override({Reason.SANDBOX_LOST: Drop()})
    return RunConfig(environment="runner-quiz", tasks=2, group=4, groups=case.rules, rules=rules)


async def live(folder: Path, case: Case, engine: Moods, *, resume: bool = False) -> None:
    loaded = LoadedPolicy(engine, SMOLLM.renderer)
    await run(config_of(case), folder, policy=loaded, concurrency=6, start_jitter=0.0, resume=resume)


async def stopped(folder: Path, case: Case, requests: int) -> None:
    engine = Moods(case.mood, requests)
    life = asyncio.create_task(live(folder, case, engine))
    async with asyncio.timeout(20):
        await engine.stopped.wait()
    life.cancel()
    await asyncio.gather(life, return_exceptions=True)
    assert asyncio.all_tasks() == {asyncio.current_task()}, "something is left running"


def check(folder: Path, case: Case) -> None:
    reader = RunReader(folder, strict=True)
    given = facts.advantages(reader.annotations())
    fates = facts.dispositions(reader.annotations())
    votes: dict[int, dict[int, float | None]] = {group: {} for group in case.votes}
    for row in reader.summaries():
        known = given.get(row.rollout)
        if known is not None and known.advantage is not None:
            votes[int(row.group.rpartition("-")[2])][row.member] = row.reward
            assert fates[row.rollout].fate is Fate.USED
        else:
            assert fates[row.rollout].fate is not Fate.USED
    assert votes == case.votes
    closed = defaultdict[str, int](int)
    for note in notes(folder, "advantage"):
        closed[note.rollout] += 1
    late = {row.rollout for row in reader.summaries() if row.reason is Reason.CANCELLED}
    assert set(closed) == {row.rollout for row in reader.summaries()} - late
    assert set(closed.values()) == {1}, "a group closes once"


@pytest.mark.parametrize("name", CASES)
def test_a_run_closes_its_groups_by_the_rules(tmp_path: Path, name: str) -> None:
    asyncio.run(live(tmp_path / "run", CASES[name], Moods(CASES[name].mood)))
    check(tmp_path / "run", CASES[name])


@pytest.mark.parametrize("requests", [2, 5])
@pytest.mark.parametrize("name", CASES)
def test_a_run_that_was_stopped_in_the_middle_comes_to_the_same(tmp_path: Path, name: str, requests: int) -> None:
    stop_and_go_on(tmp_path / "run", CASES[name], requests)


class Counts(Silent):
    """Holds at each moment that no more members are done than are planned."""

    def __init__(self) -> None:
        self.planned_members = self.done = 0
        self.first = True

    def planned(self, members: int, done: int) -> None:
        self.done = done if self.first else self.done
        self.planned_members, self.first = members, False

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        self.done += not late and outcome.disposition.fate is not Fate.RETRIED
        assert self.done <= self.planned_members

    def closed(self, closed: Closed) -> None:
        self.done += len(closed.cancelled) + closed.unrecorded


@pytest.mark.parametrize("name", CASES)
def test_what_is_planned_is_done_in_the_end(tmp_path: Path, name: str) -> None:
    case, counts = CASES[name], Counts()
    loaded = LoadedPolicy(Moods(case.mood), SMOLLM.renderer)
    asyncio.run(run(config_of(case), tmp_path / "run", policy=loaded, concurrency=6, start_jitter=0.0, progress=counts))
    assert counts.done == counts.planned_members > 0


@pytest.mark.parametrize("name", ["refill", "the replacement is lost too"])
def test_a_run_that_goes_on_plans_its_refills_again(tmp_path: Path, name: str) -> None:
    case, counts = CASES[name], Counts()
    asyncio.run(stopped(tmp_path / "run", case, 5))
    loaded = LoadedPolicy(Moods(case.mood), SMOLLM.renderer)
    again = run(
        config_of(case), tmp_path / "run", policy=loaded, concurrency=2, start_jitter=0.0, progress=counts, resume=True
    )
    asyncio.run(again)
    assert counts.done == counts.planned_members > 0


def test_what_ran_on_when_its_group_closed_and_everything_died_came_late(tmp_path: Path) -> None:
    case, folder = CASES["enough"], tmp_path / "run"

    async def killed() -> None:
        life = asyncio.create_task(live(folder, case, Moods(case.mood)))
        async with asyncio.timeout(20):
            while not (folder / "run.json").exists() or not notes(folder, "advantage"):  # noqa: ASYNC110
                await asyncio.sleep(0)
        shutil.copytree(folder, tmp_path / "as it was")
        life.cancel()
        await asyncio.gather(life, return_exceptions=True)

    asyncio.run(killed())
    asyncio.run(live(tmp_path / "as it was", case, Moods(case.mood), resume=True))
    reader = RunReader(tmp_path / "as it was", strict=True)
    fates = facts.dispositions(reader.annotations())
    lost = [row.rollout for row in reader.summaries() if row.reason is Reason.INTERRUPTED]
    assert any(fates[each].rule.startswith(LATE) for each in lost)
    assert {row.rollout for row in reader.summaries()} == fates.keys()


def test_groups_without_a_signal_are_known_again(tmp_path: Path) -> None:
    stop_and_go_on(tmp_path / "run", CASES["resample"], 11)


def test_a_resume_without_the_further_tasks_says_what_to_ask_for(tmp_path: Path) -> None:
    case = CASES["resample"]
    asyncio.run(live(tmp_path / "run", case, Moods(case.mood)))
    less = msgspec.structs.replace(config_of(case), groups=GroupRules())
    loaded = LoadedPolicy(Moods(case.mood), SMOLLM.renderer)
    with pytest.raises(ConfigError, match="--resample"):
        asyncio.run(run(less, tmp_path / "run", policy=loaded, resume=True, allow_changed=True))


def stop_and_go_on(folder: Path, case: Case, requests: int) -> None:
    asyncio.run(stopped(folder, case, requests))
    asyncio.run(live(folder, case, Moods(case.mood), resume=True))
    check(folder, case)


@pytest.mark.parametrize("concurrency", [1, 6])
def test_a_group_whose_deadline_came_before_any_outcome_stays_closed(tmp_path: Path, concurrency: int) -> None:
    folder, config = tmp_path / "run", msgspec.structs.replace(config_of(CASES["deadline"]), tasks=1, group=2)
    config = msgspec.structs.replace(config, groups=GroupRules(deadline=0.3, refill=1))

    def life(mood: str, *, resume: bool) -> Engine:
        engine = Moods(lambda group, member: mood)
        loaded = LoadedPolicy(engine, SMOLLM.renderer)
        asyncio.run(run(config, folder, policy=loaded, concurrency=concurrency, start_jitter=0.0, resume=resume))
        return engine

    life("stuck", resume=False)
    before = {each.rollout: each for each in RunReader(folder, strict=True).annotations()}
    assert {each.value["rule"] for each in before.values()} == {GROUP_CLOSED}
    assert (found := standing(open_run(folder))) is not None
    assert (found.closed, found.finished, found.missing) == (1, 2, 0)
    groups = selection(open_run(folder)).groups
    assert (groups.closed, groups.empty, groups.unrecorded, groups.late) == (1, 1, 2 - len(before), len(before))
    assert life("right", resume=True).requests == []
    assert {each.rollout: each for each in RunReader(folder, strict=True).annotations()} == before


def test_a_group_of_which_somebody_had_ended_before_it_closed_is_not_empty(tmp_path: Path) -> None:
    """As a stream leaves it that died while the group waited to be taken: nothing but the advantages is missing."""
    late, used = Disposition(Fate.DROPPED, GROUP_CLOSED), Disposition(Fate.USED, "final_answer: score")
    asyncio.run(live(tmp_path / "run", CASES["enough"], Moods(CASES["enough"].mood)))
    rows = list(RunReader(tmp_path / "run").summaries())
    fates = {row.rollout: late if row.reason is Reason.CANCELLED else used for row in rows}
    assert {fate.rule for fate in fates.values()} == {late.rule, used.rule}
    assert closed_empty(rows, fates) == set()
    assert closed_empty(rows, dict.fromkeys(fates, late)) == {row.group for row in rows}
    assert closed_empty(rows, {}) == set()
