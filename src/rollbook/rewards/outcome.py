"""What an ended attempt means for its group: a row of plain data, so that it can cross processes without its trace."""

from __future__ import annotations

import msgspec

from rollbook.rewards.dispositions import voting_reward
from rollbook.trace.disposition import ending_of
from rollbook.trace.ending import Disposition, EndingRules, Reason
from rollbook.trace.episode import GroupKey
from rollbook.trace.runs import total_runs
from rollbook.trace.trace import Trace

__all__ = ["Outcome", "outcome_of"]


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """One ended attempt."""

    rollout: str
    group: str
    seat: str
    task: str
    """Its id."""
    member: int
    """Place within the group."""
    attempt: int
    """0 for the first try of this member."""
    reason: Reason
    """Of its ending."""
    disposition: Disposition
    """What became of it."""
    reward: float | None
    """As it was scored; None: no reward, which is not zero."""
    vote: float | None
    """The reward with which it enters its group, penalties included; None: no vote."""
    turns: int
    sampled: int
    """Tokens that engines returned."""
    last_tool: str | None
    """The tool that was called last; None: none was."""
    versions: tuple[tuple[int, int], ...]
    """(policy version, sampled tokens of it), the oldest first; tokens of which nobody told the version are missing."""

    @property
    def key(self) -> GroupKey:
        """What it is compared within."""
        return GroupKey(self.group, self.seat)


def outcome_of(trace: Trace, rules: EndingRules, disposition: Disposition) -> Outcome:
    """The row of one ended trace, with the disposition that was decided. Raises `RecordError` where it still runs."""
    head = trace.head
    return Outcome(
        rollout=head.rollout,
        group=head.group,
        seat=head.agent.seat,
        task=head.task.id,
        member=head.member,
        attempt=head.attempt,
        reason=ending_of(trace).reason,
        disposition=disposition,
        reward=trace.reward,
        vote=voting_reward(trace, rules) if disposition.votes else None,
        turns=len(trace.policy_nodes),
        sampled=trace.graph.sampled_count,
        last_tool=trace.last_tool,
        versions=total_runs(trace.graph.versions.view),
    )
