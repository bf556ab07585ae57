"""A run: all groups of a configuration, several rollouts at once, into one folder.

Rules: every member of every group ends with exactly one attempt that is not retried; what was finished is never run
again on resume; what was in flight when a run died, was stopped or failed is sealed as `error/interrupted` and runs
again as the next attempt; a group's advantages are computed once, when its last member is done.
"""

from __future__ import annotations

import asyncio
import functools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import msgspec

from rollbook.errors import ConfigError, RecordError, boundary
from rollbook.rewards import advantages, annotate, decide
from rollbook.rewards.dispositions import PRODUCER
from rollbook.rollout import EnvFactory, GroupPlan, LoadedPolicy, ResourceLimit, Resources, RolloutSettings, run_member
from rollbook.rollout.group import first_cause
from rollbook.run.config import RunConfig
from rollbook.run.policies import policy_of
from rollbook.run.resume import check_folder, open_folder
from rollbook.run.summary_table import write_summary_table
from rollbook.store import RecoveryReport, RunReader, RunWriter
from rollbook.trace import Annotation, Fate, Reason, Sink, Task, Trace, facts
from rollbook.trace.disposition import ending_of
from rollbook.trace.wire import decode_record, encode_record
from rollbook.worlds import make

__all__ = ["CONCURRENCY", "Progress", "RunOutcome", "run"]

CONCURRENCY = 8
"""Rollouts in flight at once, unless told otherwise."""


class Progress(Protocol):
    """Told what happens while a run runs."""

    def planned(self, members: int, done: int) -> None:
        """So many members are planned, of which so many were finished before."""
        ...

    def turn(self, trace: Trace) -> None:
        """A rollout that runs has gained something: a turn, or what answered it."""
        ...

    def finished(self, trace: Trace) -> None:
        """A member is done; `trace` is its last attempt."""
        ...


class Silent:
    """Progress that nobody looks at."""

    def planned(self, members: int, done: int) -> None:
        pass

    def turn(self, trace: Trace) -> None:
        pass

    def finished(self, trace: Trace) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a finished run leaves behind."""

    folder: Path
    config: RunConfig
    recovery: RecoveryReport
    """What opening the folder had to mend; clean for a new run."""
    interrupted: tuple[str, ...]
    """Rollouts that an earlier process left in flight; they were sealed as such and ran again."""


async def run(
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    allow_changed: bool = False,
    concurrency: int = CONCURRENCY,
    policy: LoadedPolicy | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    """Run a configuration into `folder`.

    `resume`: go on with the run that is there. `allow_changed`: also where limits, sampling, rules or the policy are
    others now. `concurrency`: rollouts at once. `policy`: takes the place of the one that the configuration names,
    and of what it says of the template.

    Raises `UsageError` where the folder, the configuration or the policy do not allow it, with the remedy. Cancelling
    it, or a full disk, keeps every finished rollout: a resume goes on from there.
    """
    if concurrency < 1:
        raise ConfigError(f"a run needs at least 1 rollout at once, not {concurrency}")
    path = _fixed(Path(folder))
    make_env = functools.partial(make, config.environment, **config.options)
    check_folder(config, path, resume=resume, allow_changed=allow_changed)
    tasks = _tasks(make_env, config)
    loaded = policy or await asyncio.to_thread(policy_of, config)
    run_id, writer = open_folder(config, path, resume=resume, allow_changed=allow_changed)
    with writer:
        interrupted = writer.seal_interrupted()
        plans = [
            GroupPlan(id=f"{run_id}-{number:04d}", task=task, size=config.group, run=run_id, config=config.plain())
            for number, task in enumerate(tasks)
        ]
        work = _Work(config, plans, writer, progress or Silent())
        async with loaded:
            await work.run(make_env, loaded, concurrency)
        await asyncio.to_thread(write_summary_table, path)
        return RunOutcome(path, config, writer.recovery, tuple(interrupted))


def _fixed(folder: Path) -> Path:
    """The folder, whatever an environment makes of the working folder."""
    return folder.absolute()


def _tasks(make_env: EnvFactory, config: RunConfig) -> Sequence[Task]:
    name = f"environment {config.environment!r}"
    with boundary(f"{name} cannot give its tasks", ConfigError):
        tasks = list(make_env().tasks(config.tasks, config.seed))
    try:
        decode_record(encode_record(tasks), list[Task], "tasks")
    except RecordError as error:
        raise ConfigError(f"{name} gives tasks that cannot be kept: {error}; a Task holds plain JSON data") from error
    if len(tasks) != config.tasks:
        raise ConfigError(f"{name} gives {len(tasks)} tasks; ask for no more than that")
    twice = [task for task, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise ConfigError(f"{name} gives two tasks the id {twice[0]!r}")
    return tasks


class _Telling(Sink):
    """The writer, and somebody who is told of each turn that is kept."""

    def __init__(self, writer: RunWriter, progress: Progress) -> None:
        self._writer, self._progress = writer, progress

    def begin(self, trace: Trace) -> None:
        self._writer.begin(trace)

    def turn(self, trace: Trace) -> None:
        self._writer.turn(trace)
        self._progress.turn(trace)

    def seal(self, trace: Trace) -> None:
        self._writer.seal(trace)

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        self._writer.annotate(annotations)


class _Work:
    """The members that are left to do, and the groups that close behind them."""

    def __init__(self, config: RunConfig, plans: Sequence[GroupPlan], writer: RunWriter, progress: Progress) -> None:
        self._plans, self._writer, self._progress = plans, writer, progress
        self._sink = _Telling(writer, progress)
        self._spread = config.spread
        self._settings = RolloutSettings(
            limits=config.limits,
            sampling=msgspec.structs.replace(config.sampling, seed=config.seed),
            rules=config.rules,
            context=config.context,
            cancelled_as=Reason.INTERRUPTED,
        )
        self._done = Counter[str]()
        self._attempts = defaultdict[str, defaultdict[int, list[Trace]]](lambda: defaultdict(list))
        self._open_plans = self._read()

    def _read(self) -> list[GroupPlan]:
        """Take in what the run holds already; returns the plans of the groups that are not closed."""
        reader = RunReader(self._writer.folder)
        delivered = facts.advantages(note for note in reader.annotations() if note.producer == PRODUCER)
        rows = sorted(reader.summaries(), key=lambda row: row.attempt)
        closed = {row.group for row in rows if row.rollout in delivered}
        planned = {plan.id: plan.task.id for plan in self._plans}
        for row in rows:
            if planned.get(row.group) != row.task:
                raise ConfigError(
                    f"rollout {row.rollout} in {self._writer.folder} is of the task {row.task!r}, and the environment "
                    f"now gives {planned.get(row.group)!r} in its place: it has changed since; start a new run"
                )
            if row.group not in closed:
                self._attempts[row.group][row.member].append(reader.get(row.rollout))
        return [plan for plan in self._plans if plan.id not in closed]

    async def run(self, make_env: EnvFactory, loaded: LoadedPolicy, concurrency: int) -> None:
        """Run what is left, `concurrency` members at a time, group by group."""
        left = [
            (plan, member)
            for plan in self._open_plans
            for member in range(plan.size)
            if not self._is_done(plan, member)
        ]
        total = sum(plan.size for plan in self._plans)
        self._progress.planned(total, total - len(left))
        queue = iter(left)
        resources = Resources({"engine": ResourceLimit(limit=concurrency)})
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(min(concurrency, len(left))):
                    tasks.create_task(self._serve(queue, make_env, loaded, resources))
        except ExceptionGroup as group:
            raise first_cause(group) from group

    async def _serve(
        self, queue: Iterator[tuple[GroupPlan, int]], make_env: EnvFactory, loaded: LoadedPolicy, resources: Resources
    ) -> None:
        for plan, member in queue:
            attempts = await run_member(
                make_env,
                plan,
                member,
                loaded,
                self._settings,
                sink=self._sink,
                resources=resources,
                earlier=self._attempts[plan.id][member],
            )
            self._attempts[plan.id][member] = attempts
            self._progress.finished(attempts[-1])
            self._member_done(plan)

    def _is_done(self, plan: GroupPlan, member: int) -> bool:
        """True where the member's last attempt counts. Dispositions are kept again, for a crash may have lost them."""
        attempts = self._attempts[plan.id][member]
        if not attempts:
            return False
        reasons = [ending_of(trace).reason for trace in attempts]
        decided = {
            trace.id: decide(trace, self._settings.rules, earlier=reasons[:place])
            for place, trace in enumerate(attempts)
        }
        self._writer.annotate(annotate(decided))
        if decided[attempts[-1].id].fate is Fate.RETRIED:
            return False
        self._member_done(plan)
        return True

    def _member_done(self, plan: GroupPlan) -> None:
        """Close the group behind its last member: its advantages are computed now, and never again."""
        self._done[plan.id] += 1
        if self._done[plan.id] == plan.size:
            traces = [trace for attempts in self._attempts.pop(plan.id).values() for trace in attempts]
            found = advantages(traces, self._settings.rules, spread=self._spread, scheduled=plan.size)
            self._writer.annotate(found.annotations())
