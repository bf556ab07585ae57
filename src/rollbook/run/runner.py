"""A run: all groups of a configuration, several rollouts at once, into one folder.

Rules: every member of every group ends with exactly one attempt that is not retried; finished members are never run
again on resume; what was in flight when a run died is sealed as `error/interrupted` and runs again as the next
attempt; a group's advantages are computed once, when its last member is done.
"""

from __future__ import annotations

import asyncio
import functools
import secrets
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

import msgspec

from rollbook import envs
from rollbook.errors import ConfigError
from rollbook.rewards import advantages, delivered
from rollbook.rollout import GroupPlan, Limiter, LoadedPolicy, RolloutSettings, run_member
from rollbook.run.config import RunConfig, differences
from rollbook.run.policies import load_policy
from rollbook.store import RecoveryReport, RunReader, RunWriter
from rollbook.trace import Sampling, Trace

__all__ = ["Progress", "RunOutcome", "run"]

CONCURRENCY = 8
"""Rollouts in flight at once, unless told otherwise."""


class Progress(Protocol):
    """Told what happens while a run runs."""

    def planned(self, members: int, done: int) -> None:
        """So many members are planned, of which so many were finished before."""
        ...

    def finished(self, trace: Trace) -> None:
        """A member is done; `trace` is its last attempt."""
        ...


class Silent:
    """Progress that nobody looks at."""

    def planned(self, members: int, done: int) -> None:
        pass

    def finished(self, trace: Trace) -> None:
        pass


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a finished run leaves behind."""

    folder: Path
    config: RunConfig
    recovery: RecoveryReport
    """What opening the folder had to mend; empty for a new run."""


async def run(
    config: RunConfig,
    folder: Path | str,
    *,
    resume: bool = False,
    allow_changed: bool = False,
    concurrency: int = CONCURRENCY,
    loaded: LoadedPolicy | None = None,
    progress: Progress | None = None,
) -> RunOutcome:
    """Run a configuration into `folder`. `resume`: go on with the run that is there.

    `loaded` replaces the policy that the configuration names. Raises `UsageError` where the folder, the
    configuration or the policy do not allow it, with the remedy.
    """
    folder = Path(folder)
    make_env = functools.partial(envs.make, config.environment, **config.options)
    tasks = make_env().tasks(config.tasks, config.seed)
    with _open(config, folder, resume=resume, allow_changed=allow_changed) as writer:
        plans = _plans(config, writer.run_id, tasks)
        work = _Work(config, plans, writer, RunReader(folder), progress or Silent())
        async with loaded or load_policy(config.policy) as ready:
            await work.run(make_env, ready, concurrency)
        return RunOutcome(folder, config, writer.recovery)


def _open(config: RunConfig, folder: Path, *, resume: bool, allow_changed: bool) -> RunWriter:
    """A new run folder, or the one that is there where it was asked for the same."""
    if not resume:
        return RunWriter.create(folder, config.plain())
    writer = RunWriter.open(folder)
    changed = differences(writer.config, config.plain())
    if changed and not allow_changed:
        writer.close()
        raise ConfigError(
            "this run was started with another configuration:\n  "
            + "\n  ".join(changed)
            + "\nAsk for the same, start a new "
            "run in another folder, or pass --allow-changed to go on with the new one."
        )
    return writer


def _plans(config: RunConfig, run_id: str, tasks: Sequence[Task]) -> list[GroupPlan]:
    plain = config.plain()
    return [
        GroupPlan(id=f"{run_id}-{number:04d}", task=task, size=config.group, run=run_id, config=plain)
        for number, task in enumerate(tasks)
    ]


class _Work:
    """The members that are left to do, and the groups that close behind them."""

    def __init__(
        self, config: RunConfig, plans: Sequence[GroupPlan], writer: RunWriter, reader: RunReader, progress: Progress
    ) -> None:
        self._writer, self._progress, self._plans = writer, progress, plans
        self._spread = config.spread
        self._settings = RolloutSettings(
            limits=config.limits,
            sampling=msgspec.structs.replace(config.sampling, seed=config.seed),
            rules=config.rules,
        )
        self._attempts: dict[tuple[str, int], list[Trace]] = defaultdict(list)
        self._done: dict[str, int] = defaultdict(int)
        self._delivered = delivered(reader.annotations())
        self._load(reader)

    def _load(self, reader: RunReader) -> None:
        """What is there from before: attempts by member, in order."""
        summaries = sorted(reader.summaries(), key=lambda row: row.attempt)
        for row in summaries:
            if row.group not in self._delivered:
                self._attempts[row.group, row.member].append(reader.get(row.rollout))
