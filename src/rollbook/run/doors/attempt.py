"""One attempt for a trainer that asks for one at a time: retried by the ending rules, and then its samples.

Rules: an attempt that is retried stays in the record and gives nothing; one without a vote (dropped, masked, no reward)
gives no sample, and whoever asked decides how its trainer is told so.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass

import msgspec

from rollbook.rewards import decide, voting_reward
from rollbook.rollout import EnvFactory, LoadedPolicy, Resources, RolloutSettings, derive_seed
from rollbook.rollout.group import group
from rollbook.trace import Sink, Task, Trace
from rollbook.trace.sample import Sample, samples

__all__ = ["Attempt", "make_attempt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What came of it."""

    trace: Trace
    """Of the last try."""
    samples: tuple[Sample, ...]
    """One for each branch that trains, with the reward that votes (penalties of ending rules included); none where the
    attempt has no vote."""


async def make_attempt(
    make_env: EnvFactory,
    task: Task,
    policy: LoadedPolicy,
    settings: RolloutSettings,
    key: str,
    *,
    sink: Sink | None = None,
    resources: Resources | None = None,
) -> Attempt:
    """Run one rollout of `task`, and again where a rule says so. Raises `StoreError` where the record cannot be kept.

    `key`: tells this attempt from all others, those at the same task included: its seeds are made of it and of the
    settings' seed. `sink`: where all tries are kept; None: nowhere. `resources`: what it shares with others; None:
    nothing.
    """
    own = msgspec.structs.replace(settings.sampling, seed=derive_seed(settings.sampling.seed or 0, key))
    asked = dataclasses.replace(settings, sampling=own)
    traces = await group(make_env, task, policy, 1, settings=asked, sink=sink, resources=resources)
    last = traces[-1]
    if not last.head.tokens:
        return Attempt(trace=last, samples=())
    built = samples(last, disposition=decide(last, settings.rules)).samples
    vote = voting_reward(last, settings.rules)
    return Attempt(trace=last, samples=tuple(dataclasses.replace(each, reward=vote) for each in built))
