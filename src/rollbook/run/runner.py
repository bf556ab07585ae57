"""A run: all groups of a configuration, many rollouts at once, into one folder.

Rules: every member of every group ends with exactly one attempt that is not retried, or is counted as given up; what
was finished is never run again on resume; what was in flight when a run died, was stopped or failed is sealed as
`error/interrupted` and runs again as the next attempt; a group's advantages are computed once, when it closes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import functools
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rollbook.errors import ConfigError, RecordError, boundary
from rollbook.rollout import EnvFactory, LoadedPolicy
from rollbook.rollout.pool import GroupBook, Scheduler
from rollbook.run.access import Access
from rollbook.run.config import RunConfig
from rollbook.run.copies import open_copy, writing
from rollbook.run.crews import Plant, open_crew
from rollbook.run.fitness import refuse_unfit
from rollbook.run.keeping import Keeper, Progress, Silent
from rollbook.run.planning import Planner
from rollbook.run.policies import policy_of
from rollbook.run.resources import resource_report, write_resources
from rollbook.run.resume import check_folder, open_folder
from rollbook.run.summary_table import write_summary_table
from rollbook.store import RecoveryReport, RunReader
from rollbook.trace import Task
from rollbook.trace.wire import decode_record, encode_record
from rollbook.worlds import make

__all__ = ["CONCURRENCY", "Progress", "RunOutcome", "run"]

CONCURRENCY = 8
"""Rollouts in flight at once, unless told otherwise."""
JITTER_PER_ROLLOUT = 0.002
"""Seconds of start jitter for each rollout that starts at once, so that an engine is not hit by all in one moment."""
MAX_JITTER = 5.0
ORDER_SLACK = 60.0
"""Seconds beyond its own limits after which an attempt is given up for lost."""


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a finished run leaves behind."""

    folder: Path
    config: RunConfig
    recovery: RecoveryReport
    """What opening the folder had to mend; clean for a new run."""
    interrupted: tuple[str, ...]
    """Rollouts that an earlier process left in flight; they were sealed as such and ran again."""


async def run(  # noqa: PLR0913 - all but two by name, each with a default
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    allow_changed: bool = False,
    concurrency: int = CONCURRENCY,
    workers: int = 0,
    ray: bool | str = False,
    store: str | None = None,
    start_jitter: float | None = None,
    policy: LoadedPolicy | None = None,
    access: Access | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    """Run a configuration into `folder`.

    `resume`: go on with the run that is there. `allow_changed`: also where limits, sampling, rules or the policy are
    others now. `concurrency`: rollouts at once, over all workers. `workers`: processes that run them; 0: this one.
    `ray`: the workers are actors on the Ray cluster that this machine belongs to, or at the address that is given; all
    its machines share `folder`, or `store` is given. `store`: the URL of an object store, to which the run is copied
    while it runs; workers on Ray hand their parts over through it. `start_jitter`: seconds over which the first
    rollouts start; None: a little for each. `policy`: takes the place of the one that the configuration names, and of
    what it says of the template, in this process; workers load their own by its name. `access`: an engine's key, and
    where models are kept.

    Raises `UsageError` where the folder, the configuration or the policy do not allow it, with the remedy. Cancelling
    it, or a full disk, keeps every finished rollout: a resume goes on from there.
    """
    cluster = _cluster(ray)
    _check_crew(concurrency, workers, cluster)
    path = _fixed(Path(folder))
    copy = None if store is None else open_copy(store, path)
    make_env = functools.partial(make, config.environment, **config.options)
    check_folder(config, path, resume=resume, allow_changed=allow_changed)
    tasks = _tasks(make_env, config)
    way = access or Access()
    way = dataclasses.replace(way, connections=max(way.connections, concurrency))
    loaded = policy or await asyncio.to_thread(
        policy_of, config, api_key=way.api_key, connections=way.connections, cache=way.cache
    )
    await refuse_unfit(loaded, config.sampling)
    spools = copy is not None and cluster is not None
    if copy is not None:
        await asyncio.to_thread(copy.check, resume=resume)
    if copy is not None and resume:
        await asyncio.to_thread(copy.fetch)
    run_id, writer = open_folder(config, path, resume=resume, allow_changed=allow_changed)
    async with writing(writer, copy, parts=not spools):
        interrupted = writer.seal_interrupted()
        planner = Planner(config, tasks, run_id, RunReader(path))
        keeper = Keeper(config, planner, writer, progress or Silent())
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
        async with open_crew(plant, workers, cluster) as crew:
            scheduler = Scheduler(
                crew,
                keeper,
                concurrency=concurrency,
                order_seconds=_order_seconds(config),
                group_seconds=config.groups.deadline,
                jitter=functools.partial(random.uniform, 0.0, _jitter(start_jitter, concurrency)),
            )
            reporting = asyncio.create_task(keeper.report(crew))
            try:
                await scheduler.run(functools.partial(_next_book, planner, keeper))
            finally:
                reporting.cancel()
                await asyncio.gather(reporting, return_exceptions=True)
                write_resources(path, resource_report(crew.snapshot(), workers or 1))
        await asyncio.to_thread(write_summary_table, path)
        return RunOutcome(path, config, writer.recovery, tuple(interrupted))


def _cluster(ray: bool | str) -> str | None:
    """The address of the cluster; None: none was asked for."""
    return ("auto" if ray else None) if isinstance(ray, bool) else ray


def _check_crew(concurrency: int, workers: int, cluster: str | None) -> None:
    if concurrency < 1 or workers < 0:
        raise ConfigError(
            f"a run needs at least 1 rollout at once and no negative workers, not {concurrency}, {workers}"
        )
    if cluster is not None and not workers:
        raise ConfigError("a run on a Ray cluster needs workers: say how many (--workers N)")


async def _next_book(planner: Planner, keeper: Keeper) -> GroupBook | None:
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
