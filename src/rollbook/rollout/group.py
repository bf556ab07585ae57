"""One rollout, or one group of them, in this process: what a run is made of, for scripts and notebooks.

Each member is retried by the ending rules with its own budget for each reason; a retried attempt stays in the record
and has no vote.
"""

from __future__ import annotations

import random
import secrets
from dataclasses import dataclass, field

from rollbook.rewards import Outcome, annotate
from rollbook.rewards.group_scoring import scores_groups
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.rollout.pool.book import Closed, GroupBook
from rollbook.rollout.pool.group_scoring import EnvGroupScoring, reward_annotations
from rollbook.rollout.pool.local_worker import KeepingSink, LocalWorker, new_env
from rollbook.rollout.pool.orders import EnvFactory, GroupPlan, GroupRules
from rollbook.rollout.pool.scheduler import Listener, Scheduler
from rollbook.rollout.resources import ResourceLimit, Resources
from rollbook.rollout.rollout import DEFAULT_SETTINGS, RolloutSettings, head_for, run_rollout
from rollbook.trace import MemorySink, Sink, Task, Trace
from rollbook.trace.facts import Reward
from rollbook.trace.rescored import rescored_all

__all__ = ["group", "rollout"]


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
    """`size` rollouts of one task, side by side; returns their traces, retried attempts included, with the rewards that
    scoring the group as a whole gave them.

    Each request carries a seed of its own, made from `settings.sampling.seed`. `concurrency`: requests to the engine
    at once; None: no limit. `resources`: what the rollouts share with others; takes the place of `concurrency`. Pass
    the traces to `advantages`.
    """
    keeping = KeepingSink(MemorySink() if sink is None else sink)
    shared = resources or Resources({"engine": ResourceLimit(limit=concurrency)})
    make_env, whole = _asked(make_env)
    worker = LocalWorker(
        make_env=make_env,
        loaded=policy,
        settings=settings,
        sink=keeping,
        resources=shared,
    )
    plan = GroupPlan(id=secrets.token_hex(4), task=task, size=size)
    book = GroupBook(
        plan,
        GroupRules(),
        settings.rules,
        request_retries=settings.limits.request_retries,
        scored_whole=whole,
        chance=random.random,  # spreads waits, guards nothing
    )
    books = iter([book])

    async def next_group() -> GroupBook | None:
        return next(books, None)

    listener = _Annotating(keeping)
    score = EnvGroupScoring(
        make_env=make_env, read=keeping.get, rules=settings.rules, limits=settings.limits, resources=shared
    )
    await Scheduler(worker, listener, concurrency=size, score=score).run(next_group)
    traces = sorted(keeping.sealed, key=lambda trace: (trace.head.member, trace.head.attempt))
    return list(rescored_all(traces, listener.rewards))


def _asked(make_env: EnvFactory) -> tuple[EnvFactory, bool]:
    """Whether the environments that `make_env` makes score groups; the one that was asked is the first that is used.
    Raises `ConfigError` where it cannot be made."""
    made = [new_env(make_env)]
    return lambda: made.pop() if made else make_env(), scores_groups(made[0])


@dataclass(frozen=True, slots=True)
class _Annotating(Listener):
    """Keeps what became of each attempt."""

    sink: Sink
    rewards: dict[str, Reward] = field(default_factory=dict[str, Reward])
    """Of a group that was scored as a whole."""

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        del late
        self.sink.annotate(annotate({outcome.rollout: outcome.disposition}))

    def closed(self, closed: Closed) -> None:
        self.rewards.update(closed.scores.rewards)
        if closed.scores.rewards:
            self.sink.annotate(reward_annotations(closed.scores.rewards, closed.scores.judged))
            self.sink.annotate(annotate(closed.changed))
