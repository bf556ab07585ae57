"""A run: all groups of a configuration, many rollouts at once, into one folder.

Rules: every member of every group ends with exactly one attempt that is not retried, or is counted as given up; what
was finished is never run again on resume; what was in flight when a run died, was stopped or failed is sealed as
`error/interrupted` and runs again as the next attempt; a group's advantages are computed once, when it closes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Unpack

from rollbook.run.config import RunConfig
from rollbook.run.live_run import RunOptions, RunRequest, next_book, open_live_run
from rollbook.store import RecoveryReport

__all__ = ["RunOutcome", "run"]


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """What a finished run leaves behind."""

    folder: Path
    config: RunConfig
    recovery: RecoveryReport
    """What opening the folder had to mend; clean for a new run."""
    interrupted: tuple[str, ...]
    """Rollouts that an earlier process left in flight; they were sealed as such and ran again."""


async def run(config: RunConfig, folder: Path | str, **options: Unpack[RunOptions]) -> RunOutcome:
    """Run a configuration into `folder`. Options, each by name (`RunOptions` says more of each):

    `resume`: go on with the run that is there; `allow_changed`: though it was asked for something else. `concurrency`
    (8): rollouts at once, over all workers. `workers` (0): processes that run them; 0: this one. `ray`: they are actors
    on a Ray cluster, at an address or where this machine belongs. `store`: the URL of an object store, to which the run
    is copied. `start_jitter`: seconds over which the first rollouts start. `policy`: takes the place of the one that
    the configuration names; `tasks`: of the environment's own. `access`: an engine's key, and where models are kept.
    `progress`: told what happens.

    Raises `UsageError` where the folder, the configuration or the policy do not allow it, with the remedy. Cancelling
    it, or a full disk, keeps every finished rollout: a resume goes on from there.
    """
    async with open_live_run(RunRequest(config=config, folder=folder, **options)) as live:
        scheduler = live.scheduler(live.executor, live.recorder)
        await scheduler.run(functools.partial(next_book, live.planner, live.recorder))
    return RunOutcome(live.folder, config, live.writer.recovery, live.interrupted)
