"""Groups: the n rollouts of one scheduled task, their retries, and what becomes of them when the group closes.

Each member is retried by the ending rules with its own budget per reason; a retried attempt stays in the record and has no vote. When the
last member is done the dispositions are fixed and the advantages computed, once.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from rollbook.envs import Environment, ToolSet
from rollbook.rewards import advantages, decide
from rollbook.rollout.limiter import Limiter
from rollbook.rollout.loaded import LoadedPolicy, derive_seed
from rollbook.rollout.rollout import RolloutSettings, run_rollout
from rollbook.trace import (
    Annotation,
    Disposition,
    Fate,
    MemorySink,
    Reason,
    Sink,
    Task,
    Trace,
    TraceHead,
)

__all__ = ["GroupPlan", "close_group", "group", "rollout", "run_member"]

EnvFactory = Callable[[], Environment]
"""Makes one environment a rollout; an `Environment` class is one."""

BACKOFF = 0.2
"""Seconds before the first retry; doubles with each further one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One scheduled group."""

    id: str
    task: Task
    size: int
    run: str = ""
    config: dict[str, object] = field(default_factory=dict[str, object])
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
    first_attempt: int = 0,
) -> list[Trace]:
    """Run one member until an attempt counts or its retries are used up; returns all attempts, the last one last."""
    attempts: list[Trace] = []
    retried = Counter[Reason]()
    while True:
        attempt = first_attempt + len(attempts)
        env = make_env()
        seed = derive_seed(settings.sampling.seed or 0, plan.id, member, attempt)
        trace = await run_rollout(
            env, _head(env, plan, member, attempt, loaded), loaded, settings, seed=seed, sink=sink, engine=engine
        )
        attempts.append(trace)
        disposition = decide(trace, settings.rules, retried)
        sink.annotate([_disposition_note(trace, disposition)])
        if disposition.fate is not Fate.RETRIED:
            return attempts
        assert trace.ending is not None
        await asyncio.sleep(BACKOFF * 2 ** retried.total())
        retried[trace.ending.reason] += 1


def close_group(traces: list[Trace], dispositions: dict[str, Disposition], plan: GroupPlan, settings: RolloutSettings, sink: Sink) -> None:
    """Compute the group's advantages, once, and keep them."""
