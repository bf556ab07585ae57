"""A run: all groups of a configuration, many rollouts at once, into one folder.

Rules: every member of every group ends with exactly one attempt that is not retried, or is counted as given up; what
was finished is never run again on resume; what was in flight when a run died, was stopped or failed is sealed as
`error/interrupted` and runs again as the next attempt; a group's advantages are computed once, when it closes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path

from rollbook.rollout import LoadedPolicy
from rollbook.run.access import Access
from rollbook.run.config import RunConfig
from rollbook.run.live_run import RunRequest, next_book, open_live_run
from rollbook.run.recording import Progress, Silent
from rollbook.store import RecoveryReport

__all__ = ["CONCURRENCY", "RunOutcome", "run"]

CONCURRENCY = 8
"""Rollouts in flight at once, unless told otherwise."""


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
    what it says of the template, in this process; workers load the same by its name, and another is refused with
    them. `access`: an engine's key, and where models are kept.

    Raises `UsageError` where the folder, the configuration or the policy do not allow it, with the remedy. Cancelling
    it, or a full disk, keeps every finished rollout: a resume goes on from there.
    """
    asked = RunRequest(
        config=config,
        folder=folder,
        resume=resume,
        allow_changed=allow_changed,
        concurrency=concurrency,
        workers=workers,
        ray=ray,
        store=store,
        start_jitter=start_jitter,
        policy=policy,
        progress=progress or Silent(),
        access=access or Access(),
    )
    async with open_live_run(asked) as works:
        scheduler = works.scheduler(works.executor, works.recorder)
        await scheduler.run(functools.partial(next_book, works.planner, works.recorder))
    return RunOutcome(works.folder, config, works.writer.recovery, works.interrupted)
