"""Who trains what: which branch owns each sampled node of a trace, and why the others do not train.

Order of the rules: first the branches that cannot train go (the whole trace where its seat is not trainable or its
disposition has no vote; redacted nodes; rejected attempts, those of a compaction too; over length); then the earliest
surviving branch that holds a node owns it, and the node is context in the others; last, nodes of an untrainable policy
or taken out of the loss stay as context, and what lies behind the cut of a branch is gone. Every sampled token that is
not trained is counted with its reason, so captured = trained + lost.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np
import numpy.typing as npt

from rollbook.trace.ending import Disposition
from rollbook.trace.node import ORIGIN, POLICY, SAMPLED, TOKENS, Branch, Mark
from rollbook.trace.record import EdgeLabel
from rollbook.trace.trace import Trace

__all__ = ["LossReason", "Ownership", "Share", "TokenLedger"]


class LossReason(StrEnum):
    """Why a sampled token is not trained."""

    UNTRAINABLE_SEAT = "untrainable_seat"
    """The agent's seat does not train."""
    UNTRAINABLE_POLICY = "untrainable_policy"
    """Another policy, which does not train, sampled it."""
    NO_VOTE = "no_vote"
    """The rollout's disposition is dropped, masked or retried."""
    REJECTED = "rejected"
    """The attempt was thrown away and sampled again."""
    REDACTED = "redacted"
    """A node of its branch was redacted."""
    OVER_LENGTH = "over_length"
    """Its branch is longer than the trainer takes."""
    DEMOTED = "demoted"
    """Its turn was taken out of the loss."""
    CUT_OFF = "cut_off"
    """It lies behind the length at which its branch was cut."""


@dataclass(slots=True)
class TokenLedger:
    """Where the sampled tokens of a trace went."""

    captured: int = 0
    """Sampled tokens that the trace holds."""
    trained: int = 0
    """Of these, in the loss of exactly one sample."""
    lost: Counter[LossReason] = field(default_factory=Counter[LossReason])
    """The others, by reason."""

    def __iadd__(self, other: TokenLedger) -> TokenLedger:
        self.captured += other.captured
        self.trained += other.trained
        self.lost += other.lost
        return self


@dataclass(frozen=True, slots=True)
class Share:
    """What one branch has of its trace."""

    branch: Branch
    loss: LossReason | None
    """Why the whole branch cannot train; None: it can."""
    trained: npt.NDArray[np.int32]
    """int32: the nodes that train here, and nowhere else."""


class Ownership:
    """The rules applied to one trace; what all its branches share is computed once."""

    def __init__(
        self, trace: Trace, disposition: Disposition | None = None, max_tokens: int | None = None, *, cut: bool = False
    ) -> None:
        """`disposition`: None means that no rules were applied. `max_tokens`: branches longer than this do not train,
        or with `cut` end there."""
        self.trace, self.graph = trace, trace.graph
        self.disposition, self.max_tokens, self.cut = disposition, max_tokens, cut
        self.counts = self.graph.counts()
        """The node table (`MessageGraph.counts`)."""
        self.sampled_counts = self.counts[:, SAMPLED]
        """Sampled tokens by node."""
        self.kept_counts = self.sampled_counts if max_tokens is None or not cut else self._count_kept(max_tokens)
        """Of these, the ones that no cut takes away."""
        is_turn = self.counts[:, ORIGIN] == POLICY
        self.turn_of = is_turn.cumsum(dtype=np.int32) - 1
        """Number of the turn by node; -1 where it is none."""
        self.turn_of[~is_turn] = -1
        self.rejected = {node for node, mark in self.graph.marks.items() if mark is Mark.REJECTED}
        """Nodes of attempts that were thrown away; their branches do not train."""
        if trace.edges:
            tried, taken = map(self._edge_sources, (EdgeLabel.COMPACTION_ATTEMPT, EdgeLabel.COMPACTION))
            self.rejected |= tried - taken
        self.node_loss = self._node_losses()
        """Nodes that stay out of the loss on their own account."""
        self.owner: dict[int, int] = {}
        """Where nodes are shared by several branches: the branch that owns each sampled one."""
        self.ledger = TokenLedger(captured=self.graph.sampled_count)
        self.shares: tuple[Share, ...] = tuple(self._divide(self.graph.branches()))
        """One for each branch, in their order."""

    def _divide(self, branches: list[Branch]) -> list[Share]:
        free = self.sampled_counts > 0
        lost_to: dict[LossReason, list[Branch]] = {}
        shares: list[Share] = []
        for branch in branches:
            reason = self._branch_loss(branch)
            trained = branch.nodes[:0]
            if reason is None:
                owned = branch.nodes[free[branch.nodes]]
                free[branch.nodes] = False
                if len(branches) > 1:
                    self.owner |= dict.fromkeys(owned.tolist(), branch.index)
                trained = self._count_owned(owned)
            else:
                lost_to.setdefault(reason, []).append(branch)
            shares.append(Share(branch, reason, trained))
        for reason, lost_branches in lost_to.items():
            for branch in lost_branches:
                self.ledger.lost[reason] += int(self.sampled_counts[branch.nodes[free[branch.nodes]]].sum())
                free[branch.nodes] = False
        self.ledger.lost = +self.ledger.lost
        return shares

    def _edge_sources(self, label: EdgeLabel) -> set[int]:
        """The nodes of this trace from which an edge of this label goes."""
        own = (None, self.trace.id)
        return {edge.source.node for edge in self.trace.edges if edge.label == label and edge.source.rollout in own}

    def _node_losses(self) -> dict[int, LossReason]:
        found = {node: LossReason.DEMOTED for node, mark in self.graph.marks.items() if mark is Mark.DEMOTED}
        untrainable = {index for index, policy in enumerate(self.trace.head.policies) if not policy.trainable}
        if untrainable:
            for node in np.flatnonzero(self.sampled_counts).tolist():
                calls: list[int] = self.graph[node].segments[:, 0].tolist()
                if any(self.trace.calls[call].policy in untrainable for call in calls):
                    found[node] = LossReason.UNTRAINABLE_POLICY
        return found

    def _branch_loss(self, branch: Branch) -> LossReason | None:
        """Why the whole branch cannot train, or None."""
        if not self.trace.head.agent.trainable:
            return LossReason.UNTRAINABLE_SEAT
        if self.disposition is not None and not self.disposition.votes:
            return LossReason.NO_VOTE
        if self.graph.marks or self.rejected:
            nodes: list[int] = branch.nodes.tolist()
            if Mark.REDACTED in {self.graph.marks.get(node) for node in nodes}:
                return LossReason.REDACTED
            if not self.rejected.isdisjoint(nodes):
                return LossReason.REJECTED
        if self.max_tokens is None or self.cut:
            return None
        return LossReason.OVER_LENGTH if int(self.counts[branch.nodes, TOKENS].sum()) > self.max_tokens else None

    def _count_owned(self, owned: npt.NDArray[np.int32]) -> npt.NDArray[np.int32]:
        """Enter the owned nodes into the ledger; returns those that train."""
        if self.node_loss:
            for node in owned.tolist():
                if node in self.node_loss:
                    self.ledger.lost[self.node_loss[node]] += int(self.sampled_counts[node])
            owned = owned[[node not in self.node_loss for node in owned.tolist()]]
        if self.kept_counts is not self.sampled_counts:
            self.ledger.lost[LossReason.CUT_OFF] += int((self.sampled_counts - self.kept_counts)[owned].sum())
            owned = owned[self.kept_counts[owned] > 0]
        self.ledger.trained += int(self.kept_counts[owned].sum())
        return owned

    def _count_kept(self, limit: int) -> npt.NDArray[np.int32]:
        """Sampled tokens of each node that lie among the first `limit` of their path."""
        kept = self.sampled_counts.copy()
        ends: list[int] = []
        for node, tokens in enumerate(self.counts[:, TOKENS].tolist()):
            parent = self.graph.parent(node)
            start = ends[parent] if parent >= 0 else 0
            ends.append(start + tokens)
            if ends[node] > limit:
                kept[node] = np.count_nonzero(self.graph[node].sampled_positions < limit - start)
        return kept
