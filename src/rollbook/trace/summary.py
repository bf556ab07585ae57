"""The summary: one flat row a rollout, always recomputed from the trace, never carried beside it.

It stands uncompressed in front of each stored trace, so lists and metrics need no token.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from rollbook.trace.ending import EndingKind, Reason
from rollbook.trace.message import ParseStatus
from rollbook.trace.record import ScoringStatus
from rollbook.trace.trace import Trace

__all__ = ["Summary", "summarise"]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """One row per rollout."""

    rollout: str
    run: str
    group: str
    episode: str
    task: str
    environment: str
    seat: str
    member: int
    """Place within the group."""
    attempt: int
    """0 for the first try of this member."""
    kind: EndingKind | None
    """None while it runs. Likewise below."""
    reason: Reason | None
    truncated: bool
    """A budget or a limit cut it short."""
    reward: float | None
    """None: no reward, which is not zero."""
    scoring: ScoringStatus
    turns: int
    """Policy nodes."""
    branches: int
    calls: int
    """Requests to the engine."""
    failed_calls: int
    """Requests that gave no node."""
    tool_calls: int
    """Tool calls that the policy attempted, bad ones included."""
    parse: dict[str, int]
    """Attempted tool calls by parse status."""
    tokens: int
    """All token ids held."""
    sampled: int
    """Token ids that engines returned."""
    logprob_mean: float | None
    """Mean logprob of the sampled tokens; None where there is none."""
    wall: float | None
    """Seconds; None where not measured."""
    started: float | None
    """Unix seconds. Likewise below."""
    finished: float | None
    marks: int | None = None
    """Nodes that are marked, so that their tokens do not train; None: an older version wrote it, and did not say."""


def summarise(trace: Trace) -> Summary:
    """The summary row of a trace."""
    graph, head, tail = trace.graph, trace.head, trace.tail
    turns: list[int] = trace.policy_nodes.tolist()
    statuses = Counter[ParseStatus](call.status for node in turns for call in graph.messages[node].tool_calls)
    logprobs = graph.logprobs.view
    return Summary(
        rollout=head.rollout,
        run=head.run,
        group=head.group,
        episode=head.episode,
        task=head.task.id,
        environment=head.environment,
        seat=head.agent.seat,
        member=head.member,
        attempt=head.attempt,
        kind=tail.ending.kind if tail.ending else None,
        reason=tail.ending.reason if tail.ending else None,
        truncated=tail.ending is not None and tail.ending.truncated,
        reward=tail.reward,
        scoring=tail.scoring.status,
        turns=len(turns),
        branches=graph.leaf_count,
        calls=len(trace.calls),
        failed_calls=sum(call.node is None for call in trace.calls),
        tool_calls=statuses.total(),
        parse={str(status): count for status, count in statuses.items()},
        tokens=len(graph.tokens),
        sampled=graph.sampled_count,
        logprob_mean=float(logprobs.mean(dtype="float64")) if len(logprobs) else None,
        wall=tail.times.wall if tail.times else None,
        started=head.started,
        finished=tail.finished,
        marks=len(graph.marks),
    )
