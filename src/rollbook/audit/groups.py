"""Groups: what is compared with each other, by scheduled group id and seat.

Where the group's advantages are recorded they decide, for they are what is trained; else the rewards of the rollouts
that may vote. A group of fewer than two voters has no variance to speak of and is not judged.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from rollbook.audit.measure import Evidence, Findings, Measure
from rollbook.trace.episode import GroupKey
from rollbook.trace.facts import Advantage
from rollbook.trace.trace import Trace

__all__ = ["GroupSizes", "ZeroVariance"]


@dataclass(slots=True)
class _Group:
    first: str
    """A rollout of the group, for findings."""
    members: int = 0
    rewards: list[float] = field(default_factory=list[float])
    """Of the rollouts that may vote."""
    fact: Advantage | None = None
    by_turn: bool = False
    """Turns of it have advantages of their own."""

    @property
    def votes(self) -> list[float]:
        return self.rewards if self.fact is None else list(self.fact.values.values())

    @property
    def alike(self) -> bool:
        """True where nothing is learned from its voters."""
        return min(self.votes) == max(self.votes) and not self.by_turn


class _Groups:
    """Reads a batch by group."""

    def __init__(self, findings: Findings, evidence: Evidence) -> None:
        self.findings, self.evidence = findings, evidence
        self.groups: dict[GroupKey, _Group] = {}

    def see(self, trace: Trace) -> None:
        key = GroupKey(trace.head.group, trace.head.agent.seat)
        group = self.groups.setdefault(key, _Group(trace.id))
        group.members += 1
        group.fact = self.evidence.advantages.get(trace.id, group.fact)
        group.by_turn |= group.fact is not None and any(each for rows in group.fact.turns.values() for _, each in rows)
        if trace.reward is not None and self.evidence.no_vote(trace) is None:
            group.rewards.append(trace.reward)


class ZeroVariance(_Groups):
    """Share of groups whose voters all fared the same: they teach nothing."""

    def finish(self) -> Measure:
        judged = [(key, group) for key, group in self.groups.items() if len(group.votes) >= 2]
        flat = [(key, group) for key, group in judged if group.alike]
        for key, group in flat:
            why = group.fact.no_signal if group.fact is not None else None
            self.findings.add_for(
                group.first,
                f"group {key.group!a} ({key.seat}): its {len(group.votes)} voters are {why or 'alike'}",
            )
        low = sum(max(group.rewards, default=1.0) <= 0 for _, group in flat)
        gated = sum(group.fact is not None and group.fact.no_signal is not None for _, group in flat)
        nothing = "no group has two rollouts that vote"
        return Measure.share(
            len(flat), len(judged), nothing, all_at_or_below_0=low, groups=len(self.groups), gated=gated
        )


class GroupSizes(_Groups):
    """Share of groups that used fewer rollouts than they were scheduled with."""

    def finish(self) -> Measure:
        known = [(key, group, group.fact) for key, group in self.groups.items() if group.fact is not None]
        small = [(key, group, fact) for key, group, fact in known if fact.used < fact.scheduled]
        for key, group, fact in small:
            self.findings.add_for(
                group.first, f"group {key.group!a} ({key.seat}): used {fact.used} of {fact.scheduled}"
            )
        scheduled, used = [fact.scheduled for *_, fact in known], [fact.used for *_, fact in known]
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
