"""A run that is open: its folder, what is left to do, who carries it out. `run` and streams are made of it."""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import random
from collections import Counter
from collections.abc import AsyncGenerator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from rollbook.envs.finishing import to_its_end
from rollbook.errors import ConfigError, RecordError, behind, boundary
from rollbook.rewards.group_scoring import scores_groups
from rollbook.rollout import EnvFactory, LoadedPolicy
from rollbook.rollout.pool import Executor, GroupBook, Listener, Scheduler
from rollbook.rollout.pool.group_scoring import GroupScoring
from rollbook.run.access import Access
from rollbook.run.config import RunConfig
from rollbook.run.copies import Copy, open_copy, writing
from rollbook.run.executors import RunParts, open_executor, starting
from rollbook.run.fitness import refuse_unfit
from rollbook.run.group_scoring import open_group_scoring, refuse_spools
from rollbook.run.planning import Planner
from rollbook.run.policies import policy_of
from rollbook.run.recording import Progress, Recorder, Silent
from rollbook.run.resources import resource_report, write_resources
from rollbook.run.resume import check_folder, open_folder
from rollbook.run.summary_table import write_summary_table
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Task
from rollbook.trace.wire import decode_record, encode_record
from rollbook.worlds import make

__all__ = ["CONCURRENCY", "LiveRun", "RunOptions", "RunRequest", "next_book", "open_live_run"]

CONCURRENCY = 8
"""Rollouts in flight at once, unless told otherwise."""
JITTER_PER_ROLLOUT = 0.002
"""Seconds of start jitter for each rollout that starts at once, so that an engine is not hit by all in one moment."""
MAX_JITTER = 5.0
ORDER_SLACK = 60.0
"""Seconds beyond its own limits after which an attempt is given up for lost."""


class RunOptions(TypedDict, total=False):
    """What `run` and `open_stream` may be told beside the configuration: how it is carried out."""

    resume: bool
    """Go on with the run that is there."""
    allow_changed: bool
    """With `resume`: also where limits, sampling, rules or the policy are others now."""
    concurrency: int
    """Rollouts at once, over all workers."""
    workers: int
    """Processes that run the rollouts; 0: this one."""
    ray: bool | str
    """The workers are actors on the Ray cluster that this machine belongs to, or at this address; all its machines
    share the folder, or `store` is given."""
    store: str | None
    """The URL of an object store, to which the run is copied while it runs; workers on Ray hand their parts over
    through it."""
    start_jitter: float | None
    """Seconds over which the first rollouts start; None: a little for each."""
    policy: LoadedPolicy | None
    """Takes the place of the one that the configuration names, and of what it says of the template, in this process;
    workers load the same by its name, and another is refused with them."""
    access: Access | None
    """An engine's key, and where models are kept."""
    progress: Progress | None
    """Told what happens."""
    tasks: Sequence[Task] | None
    """Take the place of those that the environment gives for the seed; as many as the configuration says."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """All that is asked of a run: its options as in `RunOptions`, and what they are where nothing is said."""

    config: RunConfig
    folder: Path | str
    resume: bool = False
    allow_changed: bool = False
    concurrency: int = CONCURRENCY
    workers: int = 0
    ray: bool | str = False
    store: str | None = None
    start_jitter: float | None = None
    policy: LoadedPolicy | None = None
    access: Access | None = None
    progress: Progress | None = None
    tasks: Sequence[Task] | None = None
    rounds: int | None = 1
    """How often the tasks are gone through; None: for ever."""

    def __post_init__(self) -> None:
        if self.concurrency < 1 or self.workers < 0:
            raise ConfigError(
                f"a run needs at least 1 rollout at once and no negative workers, not {self.concurrency}, "
                f"{self.workers}"
            )
        if self.start_jitter is not None and not 0 <= self.start_jitter < float("inf"):
            raise ConfigError(f"the first rollouts start over a finite time, not {self.start_jitter:g} s")
        if self.cluster is not None and not self.workers:
            raise ConfigError("a run on a Ray cluster needs workers: say how many (--workers N)")
        if self.workers and self.policy is not None and self.policy.name != self.config.policy:
            raise ConfigError(
                f"a policy of this process (an object) cannot be taken to {self.workers} worker processes: name it in "
                "RunConfig.policy and give no object, or run without workers"
            )

    @property
    def cluster(self) -> str | None:
        """The address of the Ray cluster; None: the run stays on this machine."""
        return ("auto" if self.ray else None) if isinstance(self.ray, bool) else self.ray


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveRun:
    """A run that is open: all that it takes to run its groups."""

    request: RunRequest
    folder: Path
    run_id: str
    writer: RunWriter
    planner: Planner
    recorder: Recorder
    executor: Executor
    score: GroupScoring | None
    """Scores groups as a whole; None: the environment does not."""
    interrupted: tuple[str, ...]
    """As in `RunOutcome`."""

    def scheduler(self, executor: Executor, listener: Listener) -> Scheduler:
        """A scheduler with the settings of the run."""
        config, concurrency = self.request.config, self.request.concurrency
        return Scheduler(
            executor,
            listener,
            concurrency=concurrency,
            order_seconds=_order_seconds(config),
            group_seconds=config.groups.deadline,
            score=self.score,
            jitter=functools.partial(random.uniform, 0.0, _jitter(self.request.start_jitter, concurrency)),
        )


@asynccontextmanager
async def open_live_run(request: RunRequest) -> AsyncGenerator[LiveRun]:
    """Open a run's folder and start its executor; raises as `run` does. Whatever happens within, what ended is kept."""
    config, path = request.config, _fixed(Path(request.folder))
    make_env = functools.partial(make, config.environment, **config.options)
    check_folder(config, path, resume=request.resume, allow_changed=request.allow_changed)
    tasks, whole = _tasks(make_env, config, request.tasks), scores_groups(make_env())
    access = request.access or Access()
    way = dataclasses.replace(access, connections=max(access.connections, request.concurrency))
    loaded = request.policy or await asyncio.to_thread(policy_of, config, way)
    await refuse_unfit(loaded, config.sampling)
    spools = request.store is not None and request.cluster is not None
    refuse_spools(whole=whole, spools=spools)
    copy = await _copy(request, path)
    with starting(request.cluster) as start:  # before the folder is made: where it cannot, nothing is left
        run_id, writer = open_folder(config, path, resume=request.resume, allow_changed=request.allow_changed)
        async with writing(writer, copy, parts=not spools):
            interrupted = tuple(writer.seal_interrupted())
            planner = Planner(config, tasks, run_id, RunReader(path), rounds=request.rounds, scored_whole=whole)
            recorder = Recorder(config, planner, writer, request.progress or Silent())
            recorder.begin()
            parts = RunParts(
                config=config,
                folder=path,
                run_id=run_id,
                make_env=make_env,
                loaded=loaded,
                writer=writer,
                recorder=recorder,
                access=way,
                start=start,
                copy=copy,
                spools=spools,
            )
            async with (
                _with_executor(parts, request.workers) as executor,
                open_group_scoring(parts, executor, whole=whole) as score,
            ):
                yield LiveRun(
                    request=request,
                    folder=path,
                    run_id=run_id,
                    writer=writer,
                    planner=planner,
                    recorder=recorder,
                    executor=executor,
                    score=score,
                    interrupted=interrupted,
                )
            await asyncio.to_thread(write_summary_table, path)


@asynccontextmanager
async def _with_executor(parts: RunParts, workers: int) -> AsyncGenerator[Executor]:
    """The executor, which is told of while it works and whose resources are kept when it is gone."""
    async with AsyncExitStack() as stack:
        executor = await stack.enter_async_context(open_executor(parts, workers))
        try:
            async with parts.recorder.reporting(executor):
                yield executor
        except BaseException as cause:
            with behind(cause):
                await _end(stack, parts, executor, workers)
            raise
        await _end(stack, parts, executor, workers)


async def _end(stack: AsyncExitStack, parts: RunParts, executor: Executor, workers: int) -> None:
    await to_its_end(stack.aclose())
    write_resources(parts.folder, resource_report(executor.snapshot(), workers or 1))


async def _copy(request: RunRequest, folder: Path) -> Copy | None:
    """The run's copy in an object store, and in the folder what workers left there."""
    if request.store is None:
        return None
    copy = open_copy(request.store, folder)
    await asyncio.to_thread(copy.check, resume=request.resume)
    if request.resume:
        await asyncio.to_thread(copy.fetch)
    return copy


async def next_book(planner: Planner, recorder: Recorder) -> GroupBook | None:
    """The next group. While one is open that may turn out to be without a signal, there may be a further one."""
    while (book := planner.next_book()) is None and recorder.may_replace:
        await recorder.closing()
    if book is not None:
        recorder.opened(book)
    return book


def _order_seconds(config: RunConfig) -> float | None:
    limits = config.limits
    if limits.wall is None:
        return None
    return limits.wall + limits.setup_timeout + 2 * limits.score_timeout + limits.cleanup_timeout + ORDER_SLACK


def _jitter(seconds: float | None, concurrency: int) -> float:
    return min(JITTER_PER_ROLLOUT * concurrency, MAX_JITTER) if seconds is None else seconds


def _fixed(folder: Path) -> Path:
    """The folder, whatever an environment makes of the working folder."""
    return folder.absolute()


def _tasks(make_env: EnvFactory, config: RunConfig, given: Sequence[Task] | None) -> Sequence[Task]:
    """The tasks that were asked for, then those that may replace groups without a signal. `given`: instead of the
    environment's own."""
    name, count = f"environment {config.environment!r}", config.tasks + config.groups.resample
    with boundary(f"{name} cannot give its tasks", ConfigError):
        tasks = list(make_env().tasks(count, config.seed) if given is None else given)
    try:
        decode_record(encode_record(tasks), list[Task], "tasks")
    except RecordError as error:
        raise ConfigError(f"{name} gives tasks that cannot be kept: {error}; a Task holds plain JSON data") from error
    if given is not None and len(tasks) != count:
        raise ConfigError(f"{len(tasks)} tasks are given, and the configuration asks for {count}")
    if len(tasks) != count:
        raise ConfigError(f"{name} gives {len(tasks)} tasks; ask for no more than that")
    twice = [task for task, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise ConfigError(f"{name} gives two tasks the id {twice[0]!r}")
    return tasks
