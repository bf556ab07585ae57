"""Scoring whole groups of a stored run again, for an environment that compares their attempts: each in an environment
of its own, which was never set up and is cleaned up."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollbook.envs import Environment
from rollbook.envs.foreign import clean_up
from rollbook.rewards.group_scoring import compared, score_group, scores_groups
from rollbook.rollout import Limits
from rollbook.store import RunReader
from rollbook.trace import EndingRules, Trace, facts
from rollbook.trace.episode import GroupKey
from rollbook.trace.rescored import rescored

__all__ = ["CLEANUP_SECONDS", "whole_groups"]

CLEANUP_SECONDS = Limits().cleanup_timeout
"""For the clean-up of an environment that only scored."""


async def whole_groups(
    source: RunReader,
    found: Mapping[str, facts.Reward],
    make: Callable[[], Environment],
    rules: EndingRules,
    seconds: float | None,
) -> dict[str, facts.Reward]:
    """The rewards that comparing gives, by rollout, to those of the rollouts in `found` that can vote; empty where the
    environment compares nothing. `found`: what each was given by itself just now."""
    if not scores_groups(make()):
        return {}
    groups: dict[GroupKey, list[str]] = {}
    for row in source.summaries():
        if row.rollout in found:
            groups.setdefault(GroupKey(row.group, row.seat), []).append(row.rollout)
    given: dict[str, facts.Reward] = {}
    for members in groups.values():
        traces = [rescored(source.get(each), found[each]) for each in members]
        given |= await _score(make(), [trace for trace in traces if compared(trace, rules)], seconds)
    return given


async def _score(env: Environment, traces: list[Trace], seconds: float | None) -> dict[str, facts.Reward]:
    try:
        return await score_group(env, traces, seconds=seconds)
    finally:
        await clean_up(env, CLEANUP_SECONDS)
