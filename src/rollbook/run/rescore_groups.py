"""Scoring whole groups of a stored run again, for an environment that compares their attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from rollbook.envs import Environment
from rollbook.rewards.group_scoring import compared, score_group, scores_groups
from rollbook.store import RunReader
from rollbook.trace import EndingRules, Trace, facts
from rollbook.trace.episode import GroupKey
from rollbook.trace.rescored import rescored

__all__ = ["whole_groups"]


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
        given |= await score_group(make(), _voters(traces, rules), seconds=seconds)
    return given


def _voters(traces: list[Trace], rules: EndingRules) -> list[Trace]:
    return [trace for trace in traces if compared(trace, rules)]
