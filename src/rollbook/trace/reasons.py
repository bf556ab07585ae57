"""Why each token of a branch trains, or why it does not: the one place where that is put into words.

Rules: the spans of a branch cover its tokens in their order without a gap; a span trains exactly where the loss mask
of the branch's sample is set (`rollbook.trace.sample`); each reason has one sentence.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

import msgspec

from rollbook.trace.node import RUNS
from rollbook.trace.ownership import LossReason, Ownership, Share
from rollbook.trace.runs import RunKind

__all__ = ["REASONS", "Span", "SpanReason", "token_spans"]


class SpanReason(StrEnum):
    """Why a span trains or does not, beside the `LossReason` of sampled tokens that nobody trains."""

    TRAINS = "trains"
    SCAFFOLD = "scaffold"
    CONTENT = "content"
    FORCED = "forced"
    OTHER_BRANCH = "other_branch"


REASONS: Mapping[str, str] = MappingProxyType(
    {
        SpanReason.TRAINS: "The policy sampled it, and this branch owns it.",
        SpanReason.SCAFFOLD: "The template wrote it.",
        SpanReason.CONTENT: "It came from outside: a user, a tool, or a message that was rewritten.",
        SpanReason.FORCED: "It was put in where the model left something open.",
        SpanReason.OTHER_BRANCH: "An earlier branch holds it too and owns it; here it is context.",
        LossReason.UNTRAINABLE_SEAT: "The agent's seat does not train.",
        LossReason.UNTRAINABLE_POLICY: "Another policy, which does not train, sampled it.",
        LossReason.NO_VOTE: "The rollout has no vote: it was dropped, masked or retried.",
        LossReason.REJECTED: "Its branch holds an attempt that was thrown away.",
        LossReason.REDACTED: "Its branch holds a message that was redacted.",
        LossReason.OVER_LENGTH: "Its branch is longer than the limit.",
        LossReason.DEMOTED: "Its turn was taken out of the loss.",
        LossReason.CUT_OFF: "It lies behind the length at which its branch was cut.",
    }
)
"""A sentence for each `SpanReason` and each `LossReason`."""

_GIVEN = {
    RunKind.SCAFFOLD: SpanReason.SCAFFOLD,
    RunKind.CONTENT: SpanReason.CONTENT,
    RunKind.FORCED: SpanReason.FORCED,
}


class Span(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive tokens of one message with one reason."""

    start: int
    """Index of the first token within the branch."""
    end: int
    """Behind the last one."""
    node: int
    turn: int | None
    """Number of the turn within the rollout; None where nothing was sampled."""
    trains: bool
    reason: str
    """A `SpanReason` or a `LossReason`; in words: `REASONS`."""
    owner: int | None = None
    """The branch that trains it, where that is another one."""

    def __len__(self) -> int:
        return self.end - self.start


def token_spans(ownership: Ownership, branch: int) -> tuple[Span, ...]:
    """The spans of one branch, trainable or not. Raises `IndexError` where there is no such branch."""
    share = ownership.shares[branch]
    found: list[Span] = []
    start = 0
    nodes: list[int] = share.branch.nodes.tolist()
    for node in nodes:
        if not ownership.counts[node, RUNS]:
            continue
        runs: list[list[int]] = ownership.graph[node].runs.tolist()
        for kind, count in runs:
            found += _of_run(ownership, share, node, RunKind(kind), start, start + count)
            start += count
    return tuple(found)


def _of_run(ownership: Ownership, share: Share, node: int, kind: RunKind, start: int, end: int) -> list[Span]:
    if kind is not RunKind.SAMPLED:
        return [Span(start=start, end=end, node=node, turn=None, trains=False, reason=_GIVEN[kind])]
    turn, limit = int(ownership.turn_of[node]), ownership.max_tokens
    reason, owner = _of_sampled(ownership, share, node)
    trains = reason is SpanReason.TRAINS
    if not trains or limit is None or not ownership.cut or end <= limit:
        return [Span(start=start, end=end, node=node, turn=turn, trains=trains, reason=reason, owner=owner)]
    cut = Span(start=max(start, limit), end=end, node=node, turn=turn, trains=False, reason=LossReason.CUT_OFF)
    if start >= limit:
        return [cut]
    return [Span(start=start, end=limit, node=node, turn=turn, trains=True, reason=reason), cut]


def _of_sampled(ownership: Ownership, share: Share, node: int) -> tuple[str, int | None]:
    """Why the sampled tokens of a node train in a branch or not, and the other branch that trains them."""
    mine = share.branch.index
    owner = ownership.owner.get(node, mine)  # a trace of one branch keeps none
    elsewhere = owner if owner != mine and node not in ownership.node_loss else None
    if share.loss is not None:
        return share.loss, elsewhere
    if (loss := ownership.node_loss.get(node)) is not None:
        return loss, None
    return (SpanReason.TRAINS, None) if owner == mine else (SpanReason.OTHER_BRANCH, elsewhere)
