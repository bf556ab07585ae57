"""Groups: the rollouts of one scheduled task, their retries, and what becomes of them when the group closes.

Each member is retried by the ending rules with its own budget per reason; a retried attempt stays in the record and has no vote. When the
last member is done the advantages are computed, once.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rollbook.envs import Environment
from rollbook.rewards import decide
from rollbook.rollout.limiter import Limiter
from rollbook.rollout.loaded import LoadedPolicy, derive_seed
from rollbook.rollout.rollout import RolloutSettings, head_for, run_rollout
from rollbook.trace import Fate, Reason, Sink, Task, Trace

__all__ = ["EnvFactory", "GroupPlan", "run_member"]

EnvFactory = Callable[[], Environment]
"""Makes the environment of one rollout; an `Environment` class is one."""

BACKOFF = 0.2
"""Seconds before the first retry of a member; doubles with each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One scheduled group."""

    id: str
    task: Task
    size: int
    run: str = ""
    config: dict[str, Any] = field(default_factory=dict[str, Any])
    """Resolved configuration, as plain data, for the record."""


async def run_member(
    make_env: EnvFactory,
    plan: GroupPlan,
    member: int,
    loaded: LoadedPolicy,
    settings: RolloutSettings,
    *,
    sink: Sink,
    engine: Limiter,
    earlier: Sequence[Trace] = (),
) -> list[Trace]:
    """Run one member until an attempt counts or its retries are used up; returns all attempts, `earlier` ones first."""
    attempts = list(earlier)
    retried = Counter[Reason](trace.ending.reason for trace in attempts if trace.ending is not None)
    while True:
        env, attempt = make_env(), len(attempts)
        trace = await run_rollout(
            env,
            head_for(env, plan.task, loaded, group=plan.id, member=member, attempt=attempt, run=plan.run, config=plan.config),
            loaded,
            settings,
            seed=derive_seed(settings.sampling.seed or 0, plan.id, member, attempt),
            sink=sink,
            engine=engine,
        )
        attempts.append(trace)
        disposition = decide(trace, settings.rules, retried)
        sink.annotate([disposition_note(trace, disposition)])
        if disposition.fate is not Fate.RETRIED or trace.ending is None:
            return attempts
        await asyncio.sleep(BACKOFF * 2 ** retried.total())
        retried[trace.ending.reason] += 1
