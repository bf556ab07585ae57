"""The trace: the stored record of one rollout.

A trace has a head (known when the rollout starts), a growing middle (graph, calls, edges) and a tail (known when it
stops). Rules: calls, edges and turn rewards name only what the trace holds, and a call and the segments of its node
name each other (`Trace.check`, at the latest when the trace is sealed or read); rewards are finite, also as float32,
and there is none where scoring failed; the first ending wins, and what fails later is kept as an error note; a sealed
trace never changes, later facts are annotations (`rollbook.trace.annotation`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.call import Call
from rollbook.trace.ending import Ending, is_reward
from rollbook.trace.graph import MessageGraph
from rollbook.trace.message import Message
from rollbook.trace.node import ORIGIN, POLICY, ROOT, SAMPLED, SEGMENTS, Node
from rollbook.trace.record import Edge, EdgeLabel, ErrorNote, Scoring, ScoringStatus, TraceHead, TraceTail, TurnReward
from rollbook.trace.task import Task

__all__ = ["Trace"]

_REWARDS = frozenset({"reward", "reward_parts", "turn_rewards", "scoring"})


@dataclass(slots=True)
class Trace:
    """The record of one rollout, growing until `seal`."""

    head: TraceHead
    graph: MessageGraph = field(default_factory=MessageGraph)
    calls: list[Call] = field(default_factory=list[Call])
    edges: list[Edge] = field(default_factory=list[Edge])
    tail: TraceTail = field(default_factory=TraceTail)
    sealed: bool = False

    @property
    def id(self) -> str:
        """The rollout's id."""
        return self.head.rollout

    @property
    def task(self) -> Task:
        """What was asked."""
        return self.head.task

    @property
    def ending(self) -> Ending | None:
        """Why the attempt stopped; None while it runs."""
        return self.tail.ending

    @property
    def reward(self) -> float | None:
        """The total reward; None where there is none."""
        return self.tail.reward

    @property
    def policy_nodes(self) -> npt.NDArray[np.int32]:
        """Indices of the nodes that the policy made, oldest first: int32."""
        origins = self.graph.table.view[:, ORIGIN]
        return np.flatnonzero(origins == POLICY).astype(np.int32)

    @property
    def answer(self) -> Message | None:
        """The policy's last message. Text that the harness or Rollbook made is never an answer."""
        nodes = self.policy_nodes
        return self.graph.messages[int(nodes[-1])] if len(nodes) else None

    @property
    def text(self) -> str:
        """What the policy said last; empty where it said nothing."""
        return self.answer.content if self.answer is not None else ""

    @property
    def last_tool(self) -> str | None:
        """The name in the policy's last tool call that has one; None: it called none."""
        nodes: list[int] = self.policy_nodes.tolist()
        for node in reversed(nodes):
            for call in reversed(self.graph.messages[node].tool_calls):
                if call.name:
                    return call.name
        return None

    def turns(self) -> list[Node]:
        """The policy's nodes, oldest first."""
        return [self.graph[int(node)] for node in self.policy_nodes]

    def add_call(self, call: Call) -> int:
        """Keep one engine request; returns its index. `call.node` may be the node that is added next."""
        self._check_open()
        _check_call(call, policies=len(self.head.policies), nodes=len(self.graph), may_follow=True)
        self.calls.append(call)
        return len(self.calls) - 1

    def add_edge(self, edge: Edge) -> None:
        """Keep one link. Nodes of this trace must be there; those of other traces are not looked at."""
        self._check_open()
        self._check_edge(edge)
        self.edges.append(edge)

    def end(self, ending: Ending) -> bool:
        """Fix the ending. The first cause wins: a later one becomes an error note, and False is returned."""
        self._check_open()
        if self.tail.ending is not None:
            self.note(f"after {self.tail.ending}", f"{ending}: {ending.detail}")
            return False
        self.update(ending=ending)
        return True

    def note(self, where: str, text: str) -> None:
        """Keep something that went wrong."""
        self.update(errors=(*self.tail.errors, ErrorNote(where, text)))

    def score(
        self,
        reward: float | None,
        parts: Mapping[str, float] | None = None,
        turn_rewards: tuple[TurnReward, ...] = (),
    ) -> None:
        """Keep the scorer's rewards; raises `RecordError` for one that is not finite or belongs to no turn."""
        self.update(
            reward=reward,
            reward_parts=dict(parts or {}),
            turn_rewards=turn_rewards,
            scoring=Scoring(ScoringStatus.SCORED),
        )

    def score_failed(self, reason: str) -> None:
        """The scorer failed: no reward, no vote; the ending stays as it is."""
        self.update(reward=None, reward_parts={}, turn_rewards=(), scoring=Scoring(ScoringStatus.FAILED, reason))

    def update(self, **fields: Any) -> None:
        """Replace fields of the tail. The ending is fixed by `end` and never replaced."""
        self._check_open()
        if "ending" in fields and self.tail.ending is not None:
            raise RecordError(f"the ending is fixed as {self.tail.ending}; the first cause wins")
        tail = msgspec.structs.replace(self.tail, **fields)
        if not _REWARDS.isdisjoint(fields):
            self._check_rewards(tail)
        self.tail = tail

    def seal(self) -> None:
        """Close the record. It must have an ending and hold together (`check`)."""
        if self.tail.ending is None:
            raise RecordError("a trace without an ending cannot be sealed")
        if not self.sealed:
            self.check()
        self.sealed = self.graph.sealed = True

    def check(self) -> None:
        """Check what graph, calls, edges and rewards say of each other; raises `RecordError` at the first break."""
        if len(self.graph.tokens) and not self.head.tokens:
            raise RecordError("a trace without token ids (text-only engine) holds token ids")
        policies, nodes = len(self.head.policies), len(self.graph)
        for call in self.calls:
            _check_call(call, policies=policies, nodes=nodes, may_follow=False)
        self._check_segments()
        for edge in self.edges:
            self._check_edge(edge)
        self._check_rewards(self.tail)

    def _check_segments(self) -> None:
        """Segments and calls must name each other; a node without segments (an import) is not held to that."""
        named = self.graph.segments.view[:, 0]
        if len(named) and named.max() >= len(self.calls):
            raise RecordError(f"a segment names call {named.max()}; there are {len(self.calls)}")
        ends = self.graph.table.view[:, SEGMENTS]
        gave = np.array([ROOT if call.node is None else call.node for call in self.calls], np.int64)
        if (gave[named] != ends.searchsorted(np.arange(len(named)), side="right")).any():
            raise RecordError("a segment names a call that gave another node")
        unnamed = gave[(np.bincount(named, minlength=len(gave)) == 0) & (gave != ROOT)]
        if (np.diff(ends, prepend=0)[unnamed] > 0).any():
            raise RecordError("a call gave a node whose segments do not name it")

    def _check_edge(self, edge: Edge) -> None:
        for ref in (edge.source, edge.target):
            if ref.rollout in (None, self.id) and not 0 <= ref.node < len(self.graph):
                raise RecordError(f"edge '{edge.label}' names node {ref.node}; there are {len(self.graph)}")
        source = edge.source
        if edge.label == EdgeLabel.REWRITE_OF and source.rollout in (None, self.id):
            ends = self.graph.table.view[:, SAMPLED]
            if ends[source.node] > (ends[source.node - 1] if source.node else 0):
                raise RecordError(f"node {source.node} rewrites another one and holds sampled tokens")

    def _check_rewards(self, tail: TraceTail) -> None:
        values = [*tail.reward_parts.values(), *(each.value for each in tail.turn_rewards)]
        if not all(map(is_reward, values if tail.reward is None else (*values, tail.reward))):
            raise RecordError("a reward is not finite as a float32")
        if tail.scoring.status is ScoringStatus.FAILED and (values or tail.reward is not None):
            raise RecordError("scoring failed, so there cannot be a reward")
        origins = self.graph.table.view[:, ORIGIN]
        stray = [
            each.node for each in tail.turn_rewards if not 0 <= each.node < len(origins) or origins[each.node] != POLICY
        ]
        if stray:
            raise RecordError(f"turn rewards for nodes {stray}, which are not turns of this trace")

    def _check_open(self) -> None:
        if self.sealed:
            raise RecordError(f"trace {self.id} is sealed; write an annotation instead")


def _check_call(call: Call, *, policies: int, nodes: int, may_follow: bool) -> None:
    """What a call names must be there; `may_follow`: its node may be the one that is added next."""
    if not 0 <= call.policy < policies:
        raise RecordError(f"call names policy {call.policy}; the table has {policies}")
    if not ROOT <= call.after < nodes:
        raise RecordError(f"call comes after node {call.after}; there are {nodes}")
    if call.node is not None and not call.after < call.node < nodes + may_follow:
        raise RecordError(f"call gave node {call.node}, which is not among the {nodes} or not behind {call.after}")
