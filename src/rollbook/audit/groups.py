"""Groups: what is compared with each other, by scheduled group id and seat.

Only rollouts that may vote count towards a group's rewards. A group of fewer than two voters has no variance to speak
of and is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass

from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.episode import GroupKey
from rollbook.trace.trace import Trace

__all__ = ["GroupSizes", "ZeroVariance"]


@dataclass(slots=True)
class _Group:
    first: str
    """A rollout of the group, for findings."""
    members: int = 0
    voters: int = 0
    lowest: float = float("inf")
    highest: float = float("-inf")
    scheduled: int | None = None
    used: int | None = None


class _Groups:
    """Reads a batch by group."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.groups: dict[GroupKey, _Group] = {}

    def see(self, trace: Trace) -> None:
        key = GroupKey(trace.head.group, trace.head.agent.seat)
        group = self.groups.setdefault(key, _Group(trace.id))
        group.members += 1
        fact = self.evidence.advantages.get(trace.id)
        if fact is not None:
            group.scheduled, group.used = fact.scheduled, fact.used
        if trace.reward is not None and self.evidence.no_vote(trace) is None:
            group.voters += 1
            group.lowest = min(group.lowest, trace.reward)
            group.highest = max(group.highest, trace.reward)


class ZeroVariance(_Groups):
    """Share of groups whose voters all have the same reward: they teach nothing."""

    def finish(self) -> Measure:
        judged = [(key, group) for key, group in self.groups.items() if group.voters >= 2]
        flat = [(key, group) for key, group in judged if group.lowest == group.highest]
        for key, group in flat:
            text = f"group {key.group!a} ({key.seat}): {group.voters} rewards of {group.lowest:g}"
            self.findings.add_for(group.first, text)
        low = sum(group.lowest <= 0 for _, group in flat)
        nothing = "no group has two rollouts that vote"
        return Measure.share(len(flat), len(judged), nothing, all_at_or_below_0=low, groups=len(self.groups))


class GroupSizes(_Groups):
    """Share of groups that used fewer rollouts than they were scheduled with."""

    def finish(self) -> Measure:
        known = [(key, group) for key, group in self.groups.items() if group.scheduled is not None]
        small = [(key, group) for key, group in known if (group.used or 0) < (group.scheduled or 0)]
        for key, group in small:
            text = f"group {key.group!a} ({key.seat}): used {group.used} of {group.scheduled}"
            self.findings.add_for(group.first, text)
        scheduled = [group.scheduled for _, group in known if group.scheduled is not None]
        used = [group.used for _, group in known if group.used is not None]
        nothing = "no advantages were computed: how many rollouts were scheduled is not known"
        return Measure.share(
            len(small),
            len(known),
            nothing,
            groups=len(self.groups),
            rollouts_min=min((group.members for group in self.groups.values()), default=None),
            rollouts_max=max((group.members for group in self.groups.values()), default=None),
            scheduled_min=min(scheduled, default=None),
            scheduled_max=max(scheduled, default=None),
            used_min=min(used, default=None),
            used_max=max(used, default=None),
        )
