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

from rollbook.envs.finishing import to_its_end
from rollbook.errors import ConfigError, RecordError, boundary
from rollbook.rollout import EnvFactory, LoadedPolicy
from rollbook.rollout.pool import Carrier, GroupBook, Listener, Scheduler
from rollbook.run.access import Access
from rollbook.run.config import RunConfig
from rollbook.run.copies import Copy, open_copy, writing
from rollbook.run.crews import Plant, open_crew
from rollbook.run.fitness import refuse_unfit
from rollbook.run.keeping import Keeper, Progress
from rollbook.run.planning import Planner
from rollbook.run.policies import policy_of
from rollbook.run.resources import resource_report, write_resources
from rollbook.run.resume import check_folder, open_folder
from rollbook.run.summary_table import write_summary_table
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Task
from rollbook.trace.wire import decode_record, encode_record
from rollbook.worlds import make

__all__ = ["Asked", "Works", "next_book", "open_works"]

JITTER_PER_ROLLOUT = 0.002
"""Seconds of start jitter for each rollout that starts at once, so that an engine is not hit by all in one moment."""
MAX_JITTER = 5.0
ORDER_SLACK = 60.0
"""Seconds beyond its own limits after which an attempt is given up for lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What is asked of a run, as in `run`."""

    config: RunConfig
    folder: Path | str
    resume: bool
    allow_changed: bool
    concurrency: int
    workers: int
    start_jitter: float | None
    policy: LoadedPolicy | None
    progress: Progress
    access: Access
    ray: bool | str = False
    store: str | None = None
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
class Works:
    """A run that is open: all that it takes to run its groups."""

    asked: Asked
    folder: Path
    run_id: str
    writer: RunWriter
    planner: Planner
    keeper: Keeper
    crew: Carrier
    interrupted: tuple[str, ...]
    """As in `RunOutcome`."""

    def scheduler(self, carrier: Carrier, listener: Listener) -> Scheduler:
        """A scheduler with the settings of the run."""
        config, concurrency = self.asked.config, self.asked.concurrency
        return Scheduler(
            carrier,
            listener,
            concurrency=concurrency,
            order_seconds=_order_seconds(config),
            group_seconds=config.groups.deadline,
            jitter=functools.partial(random.uniform, 0.0, _jitter(self.asked.start_jitter, concurrency)),
        )


@asynccontextmanager
async def open_works(asked: Asked) -> AsyncGenerator[Works]:
    """Open a run's folder and start its crew; raises as `run` does. Whatever happens within, all that ended is kept."""
    config, path = asked.config, _fixed(Path(asked.folder))
    make_env = functools.partial(make, config.environment, **config.options)
    check_folder(config, path, resume=asked.resume, allow_changed=asked.allow_changed)
    tasks = _tasks(make_env, config)
    way = dataclasses.replace(asked.access, connections=max(asked.access.connections, asked.concurrency))
    loaded = asked.policy or await asyncio.to_thread(
        policy_of, config, api_key=way.api_key, connections=way.connections, cache=way.cache
    )
    await refuse_unfit(loaded, config.sampling)
    copy = await _copy(asked, path)
    run_id, writer = open_folder(config, path, resume=asked.resume, allow_changed=asked.allow_changed)
    spools = copy is not None and asked.cluster is not None
    async with writing(writer, copy, parts=not spools):
        interrupted = tuple(writer.seal_interrupted())
        planner = Planner(config, tasks, run_id, RunReader(path), rounds=asked.rounds)
        keeper = Keeper(config, planner, writer, asked.progress)
        keeper.begin()
        plant = Plant(
            config=config,
            folder=path,
            run_id=run_id,
            make_env=make_env,
            loaded=loaded,
            writer=writer,
            keeper=keeper,
            access=way,
            copy=copy,
            spools=spools,
        )
        async with _crewed(plant, asked.workers, asked.cluster) as crew:
            yield Works(
                asked=asked,
                folder=path,
                run_id=run_id,
                writer=writer,
                planner=planner,
                keeper=keeper,
                crew=crew,
                interrupted=interrupted,
            )
        await asyncio.to_thread(write_summary_table, path)


@asynccontextmanager
async def _crewed(plant: Plant, workers: int, cluster: str | None) -> AsyncGenerator[Carrier]:
    """The crew, which is told of while it works and whose resources are kept when it is gone."""
    async with AsyncExitStack() as stack:
        crew = await stack.enter_async_context(open_crew(plant, workers, cluster))
        reporting = asyncio.create_task(plant.keeper.report(crew))
        try:
            yield crew
        finally:
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
            await to_its_end(stack.aclose())
            write_resources(plant.folder, resource_report(crew.snapshot(), workers or 1))


async def _copy(asked: Asked, folder: Path) -> Copy | None:
    """The run's copy in an object store, and in the folder what workers left there."""
    if asked.store is None:
        return None
    copy = open_copy(asked.store, folder)
    await asyncio.to_thread(copy.check, resume=asked.resume)
    if asked.resume:
        await asyncio.to_thread(copy.fetch)
    return copy


async def next_book(planner: Planner, keeper: Keeper) -> GroupBook | None:
    """The next group. While one is open that may turn out to be without a signal, there may be a further one."""
    while (book := planner.next_book()) is None and keeper.may_replace:
        await keeper.closing()
    if book is not None:
        keeper.opened(book)
    return book


def _order_seconds(config: RunConfig) -> float | None:
    limits = config.limits
    if limits.wall is None:
        return None
    return limits.wall + limits.setup_timeout + 2 * limits.score_timeout + limits.cleanup_timeout + ORDER_SLACK


def _jitter(asked: float | None, concurrency: int) -> float:
    return min(JITTER_PER_ROLLOUT * concurrency, MAX_JITTER) if asked is None else asked


def _fixed(folder: Path) -> Path:
    """The folder, whatever an environment makes of the working folder."""
    return folder.absolute()


def _tasks(make_env: EnvFactory, config: RunConfig) -> Sequence[Task]:
    """The tasks that were asked for, then those that may replace groups without a signal."""
    name, count = f"environment {config.environment!r}", config.tasks + config.groups.resample
    with boundary(f"{name} cannot give its tasks", ConfigError):
        tasks = list(make_env().tasks(count, config.seed))
    try:
        decode_record(encode_record(tasks), list[Task], "tasks")
    except RecordError as error:
        raise ConfigError(f"{name} gives tasks that cannot be kept: {error}; a Task holds plain JSON data") from error
    if len(tasks) != count:
        raise ConfigError(f"{name} gives {len(tasks)} tasks; ask for no more than that")
    twice = [task for task, count in Counter(task.id for task in tasks).items() if count > 1]
    if twice:
        raise ConfigError(f"{name} gives two tasks the id {twice[0]!r}")
    return tasks
