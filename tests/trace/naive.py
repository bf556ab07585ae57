"""The record's rules once more, spelled out token by token in plain Python: what the fast code is compared with."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from rollbook.trace import ROOT, EdgeLabel, LossReason, Mark, MessageGraph, RunKind, Trace, expand_runs


@dataclass(frozen=True)
class NaiveSample:
    """One sample as lists; entry t is about token t."""

    leaf: int
    nodes: list[int]
    ids: list[int]
    sampled: list[bool]
    loss: list[bool]
    logprobs: list[float | None]
    versions: list[int]
    turns: list[int]
    turn_rewards: list[tuple[int, float]]
    calls: list[int]
    complete: bool
    """Every trained token has a logprob and a call."""


def path(graph: MessageGraph, leaf: int) -> list[int]:
    """Nodes from root to `leaf`, by following parents."""
    found: list[int] = []
    while leaf != ROOT:
        found.append(leaf)
        leaf = graph[leaf].parent
    return found[::-1]


def leaves(graph: MessageGraph) -> list[int]:
    """Nodes that are nobody's parent, oldest first."""
    parents = {node.parent for node in graph}
    return [node for node in range(len(graph)) if node not in parents]


def branch_loss(trace: Trace, nodes: list[int], votes: bool, max_tokens: int | None) -> LossReason | None:
    """Why a whole branch cannot train."""
    marks = {trace.graph[node].mark for node in nodes}
    tokens = sum(len(trace.graph[node].token_ids) for node in nodes)
    rules = (
        (not trace.head.agent.trainable, LossReason.UNTRAINABLE_SEAT),
        (not votes, LossReason.NO_VOTE),
        (Mark.REDACTED in marks, LossReason.REDACTED),
        (Mark.REJECTED in marks or any(rejected_compaction(trace, node) for node in nodes), LossReason.REJECTED),
        (max_tokens is not None and tokens > max_tokens, LossReason.OVER_LENGTH),
    )
    return next((reason for holds, reason in rules if holds), None)


def rejected_compaction(trace: Trace, node: int) -> bool:
    """A summary that was tried and not taken."""
    labels = {
        edge.label for edge in trace.edges if edge.source.node == node and edge.source.rollout in (None, trace.id)
    }
    return EdgeLabel.COMPACTION_ATTEMPT in labels and EdgeLabel.COMPACTION not in labels


def node_loss(trace: Trace, node: int) -> LossReason | None:
    """Why a node stays out of the loss of its owner."""
    policies = [trace.head.policies[trace.calls[call].policy] for call, _ in trace.graph[node].segments.tolist()]
    if not all(policy.trainable for policy in policies):
        return LossReason.UNTRAINABLE_POLICY
    return LossReason.DEMOTED if trace.graph[node].mark is Mark.DEMOTED else None


def sampled_count(trace: Trace, node: int) -> int:
    """Sampled tokens of a node."""
    return len(trace.graph[node].sampled_ids)


def samples(
    trace: Trace, *, votes: bool = True, max_tokens: int | None = None
) -> tuple[list[NaiveSample], Counter[LossReason]]:
    """Each node goes to the earliest branch that can train, else to the reason of the first that cannot."""
    paths = [path(trace.graph, leaf) for leaf in leaves(trace.graph)]
    reasons = [branch_loss(trace, nodes, votes, max_tokens) for nodes in paths]
    first_seen = list(dict.fromkeys(reason for reason in reasons if reason is not None))
    lost: Counter[LossReason] = Counter()
    owner: dict[int, int] = {}
    for node in range(len(trace.graph)):
        holding = [branch for branch, nodes in enumerate(paths) if node in nodes]
        alive = [branch for branch in holding if reasons[branch] is None]
        if not alive:
            reason = min((reasons[branch] for branch in holding), key=first_seen.index)
            lost[reason] += sampled_count(trace, node)
        elif (reason := node_loss(trace, node)) is not None:
            lost[reason] += sampled_count(trace, node)
        elif sampled_count(trace, node):
            owner[node] = alive[0]
    built = [
        _sample(trace, nodes, {n for n in owner if owner[n] == b})
        for b, nodes in enumerate(paths)
        if b in owner.values()
    ]
    return built, +lost


def _sample(trace: Trace, nodes: list[int], owned: set[int]) -> NaiveSample:
    turns = trace.policy_nodes.tolist()
    made = NaiveSample(nodes[-1], nodes, [], [], [], [], [], [], [], [], True)
    complete = True
    for index in nodes:
        node = trace.graph[index]
        versions = iter(expand_runs(node.versions).tolist())
        logprobs = iter([] if node.logprobs is None else node.logprobs.tolist())
        for token, kind in zip(node.token_ids.tolist(), expand_runs(node.runs).tolist(), strict=True):
            sampled = kind == RunKind.SAMPLED
            made.ids.append(token)
            made.sampled.append(sampled)
            made.loss.append(sampled and index in owned)
            made.logprobs.append(next(logprobs, None) if sampled else None)
            made.versions.append(next(versions, -1) if sampled else -1)
            made.turns.append(turns.index(index) if sampled else -1)
        if index in owned:
            complete = complete and node.logprobs is not None and len(node.segments) > 0
            made.calls.extend(call for call, _ in node.segments.tolist())
    rewards = [(turns.index(each.node), each.value) for each in trace.tail.turn_rewards if each.node in owned]
    made.turn_rewards.extend(rewards)
    return NaiveSample(**{**made.__dict__, "complete": complete})
