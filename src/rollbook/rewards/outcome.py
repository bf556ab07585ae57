"""What an ended attempt means for its group: a row of plain data, so that it can cross processes without its trace."""

from __future__ import annotations

import hashlib
import math
from collections import defaultdict
from collections.abc import Sequence

import msgspec

from rollbook.rewards.dispositions import voting_reward
from rollbook.trace.disposition import ending_of
from rollbook.trace.ending import Disposition, EndingRules, Reason
from rollbook.trace.episode import GroupKey
from rollbook.trace.message import message_key
from rollbook.trace.node import PARENT, ROOT
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
    parts: dict[str, float] = {}
    """What the reward is made of, by name."""
    turn_rewards: tuple[tuple[int, float], ...] = ()
    """(turn, reward) of the turns that were given one; several for one turn are added up."""
    states: tuple[str, ...] = ()
    """Of each turn, what it was shown since the turn before, as a hash; empty: not known."""

    @property
    def key(self) -> GroupKey:
        """What it is compared within."""
        return GroupKey(self.group, self.seat)


def outcome_of(trace: Trace, rules: EndingRules, disposition: Disposition) -> Outcome:
    """The row of one ended trace, with the disposition that was decided. Raises `RecordError` where it still runs."""
    head = trace.head
    nodes: list[int] = trace.policy_nodes.tolist()
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
        turns=len(nodes),
        sampled=trace.graph.sampled_count,
        last_tool=trace.last_tool,
        versions=total_runs(trace.graph.versions.view),
        parts=trace.tail.reward_parts,
        turn_rewards=_turn_rewards(trace, nodes),
        states=_states(trace, nodes),
    )


def _turn_rewards(trace: Trace, nodes: Sequence[int]) -> tuple[tuple[int, float], ...]:
    number = {node: turn for turn, node in enumerate(nodes)}
    found = defaultdict[int, list[float]](list)
    for each in trace.tail.turn_rewards:
        found[number[each.node]].append(each.value)
    return tuple((turn, math.fsum(found[turn])) for turn in sorted(found))


def _states(trace: Trace, nodes: Sequence[int]) -> tuple[str, ...]:
    turns, table = frozenset(nodes), trace.graph.table.view
    states: list[str] = []
    for turn in nodes:
        shown = hashlib.blake2b(digest_size=8)
        node = int(table[turn, PARENT])
        while node != ROOT and node not in turns:
            shown.update(message_key(trace.graph.messages[node]))
            node = int(table[node, PARENT])
        states.append(shown.hexdigest())
    return tuple(states)
