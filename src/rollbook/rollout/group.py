"""Groups: the rollouts of one scheduled task, their retries, and what becomes of them when the group closes.

Each member is retried by the ending rules with its own budget per reason; a retried attempt stays in the record and
has no vote. When the last member is done the advantages are computed, once.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from rollbook.envs import Environment
from rollbook.rewards import annotate, decide
from rollbook.rollout.loaded import LoadedPolicy, derive_seed
from rollbook.rollout.resources import ResourceLimit, Resources
from rollbook.rollout.rollout import DEFAULT_SETTINGS, RolloutSettings, head_for, run_rollout
from rollbook.trace import Fate, MemorySink, Sink, Task, Trace
from rollbook.trace.disposition import ending_of

__all__ = ["EnvFactory", "GroupPlan", "first_cause", "group", "rollout", "run_member"]

EnvFactory = Callable[[], Environment]
"""Makes the environment of one rollout; an `Environment` class is one."""

BACKOFF = 0.2
"""Seconds before the first retry of a member; doubles with each further one, up to `MAX_BACKOFF`."""
MAX_BACKOFF = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One scheduled group."""

    id: str
    task: Task
    size: int
    """How many rollouts are compared."""
    run: str = ""
    """The run's id; empty outside of one."""
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
    resources: Resources,
    earlier: Sequence[Trace] = (),
) -> list[Trace]:
    """Run one member until an attempt counts or its retries are used up; returns all attempts, `earlier` ones
    first."""
    attempts = list(earlier)
    while True:
        env, attempt = make_env(), attempts[-1].head.attempt + 1 if attempts else 0
        trace = await run_rollout(
            env,
            head_for(
                env, plan.task, loaded, group=plan.id, member=member, attempt=attempt, run=plan.run, config=plan.config
            ),
            loaded,
            settings,
            seed=derive_seed(settings.sampling.seed or 0, plan.task.id, member, attempt),
            sink=sink,
            resources=resources,
        )
        disposition = decide(trace, settings.rules, earlier=[ending_of(each).reason for each in attempts])
        attempts.append(trace)
        sink.annotate(annotate({trace.id: disposition}))
        if disposition.fate is not Fate.RETRIED:
            return attempts
        await asyncio.sleep(backoff(len(attempts) - len(earlier)))


async def rollout(
    make_env: EnvFactory,
    task: Task,
    policy: LoadedPolicy,
    *,
    settings: RolloutSettings = DEFAULT_SETTINGS,
    sink: Sink | None = None,
    resources: Resources | None = None,
) -> Trace:
    """One agent's attempt at one task; returns its sealed trace. No retries. Each request carries a seed made from
    `settings.sampling.seed`.

    `make_env`: an `Environment` class, or a function that makes one. `sink`: where the record goes as it grows; None:
    it stays in memory. `resources`: what it shares with others; None: nothing.
    """
    env = make_env()
    head = head_for(env, task, policy, group=secrets.token_hex(4))
    return await run_rollout(
        env, head, policy, settings, seed=settings.sampling.seed or 0, sink=sink, resources=resources
    )


async def group(
    make_env: EnvFactory,
    task: Task,
    policy: LoadedPolicy,
    size: int,
    *,
    settings: RolloutSettings = DEFAULT_SETTINGS,
    sink: Sink | None = None,
    concurrency: int | None = None,
    resources: Resources | None = None,
) -> list[Trace]:
    """`size` rollouts of one task, side by side; returns their traces, retried attempts included.

    Each request carries a seed of its own, made from `settings.sampling.seed`. `concurrency`: requests to the engine
    at once; None: no limit. `resources`: what the rollouts share with others; takes the place of `concurrency`. Pass
    the traces to `advantages`.
    """
    shared = resources or Resources({"engine": ResourceLimit(limit=concurrency)})
    sink = MemorySink() if sink is None else sink
    plan = GroupPlan(id=secrets.token_hex(4), task=task, size=size)
    try:
        async with asyncio.TaskGroup() as tasks:
            members = [
                tasks.create_task(run_member(make_env, plan, member, policy, settings, sink=sink, resources=shared))
                for member in range(size)
            ]
    except ExceptionGroup as failed:
        raise first_cause(failed) from failed
    return [trace for member in members for trace in member.result()]


def first_cause(failed: ExceptionGroup[Exception]) -> Exception:
    """The first failure of a task group: the others are its consequences."""
    cause = failed.exceptions[0]
    return first_cause(cast("ExceptionGroup[Exception]", cause)) if isinstance(cause, ExceptionGroup) else cause


def backoff(retries: int) -> float:
    """Seconds to wait before the `retries`-th retry."""
    return min(BACKOFF * 2.0 ** min(retries - 1, 16), MAX_BACKOFF)
