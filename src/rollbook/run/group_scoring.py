"""Who scores the groups of a run as a whole: this process, whoever runs the rollouts, from the traces in its folder."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager

from rollbook.errors import ConfigError
from rollbook.rollout import Resources
from rollbook.rollout.pool import Executor, LocalWorker
from rollbook.rollout.pool.group_scoring import EnvGroupScoring, GroupScoring
from rollbook.run.executors import RunParts
from rollbook.run.policies import judge_loader
from rollbook.store import RunReader

__all__ = ["open_group_scoring", "refuse_spools"]

SHARED = ("judge", "scoring")
"""What a process that runs no rollouts needs of the run's resources."""


@asynccontextmanager
async def open_group_scoring(
    parts: RunParts, executor: Executor, *, whole: bool
) -> AsyncGenerator[GroupScoring | None]:
    """What scores groups, where they are scored as a `whole`, else None. Rollouts of this process share its judges and
    their limit; beside workers there is a limit of its own."""
    if not whole:
        yield None
        return
    async with AsyncExitStack() as stack:
        yield EnvGroupScoring(
            make_env=parts.make_env,
            read=RunReader(parts.folder).get,
            rules=parts.config.rules,
            limits=parts.config.limits,
            resources=await _resources(parts, executor, stack),
        )


async def _resources(parts: RunParts, executor: Executor, stack: AsyncExitStack) -> Resources:
    if isinstance(executor, LocalWorker):
        return executor.resources
    limits = {name: limit for name, limit in parts.config.resources.items() if name in SHARED}
    return await stack.enter_async_context(Resources(limits, load_judge=judge_loader(parts.access)))


def refuse_spools(*, whole: bool, spools: bool) -> None:
    """Raises `ConfigError` where groups are scored as a whole, and the traces of their attempts lie elsewhere."""
    if whole and spools:
        raise ConfigError(
            "the environment scores whole groups (score_group), which takes the traces of all workers: run them on a "
            "folder that all machines share, without --store"
        )
