"""Redaction: the one change that a sealed record allows, made as a new trace.

Rule: the text and the ids of a node go together. What is left of it is its place (parent, origin, reason of the
fork), its role and the mark `redacted`; its ids, runs, logprobs, versions, segments and routed experts become empty, so
each branch through it is shorter and does not train, and the count of captured tokens drops visibly. The ids that are
left on such a branch are no longer what the engine was sent. Spellings kept by a fork by drift beside the node go, too.

Copies of the text elsewhere are not searched for: in other nodes (redact those too), in the task and in the final
state (pass replacements), in error notes.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError
from rollbook.trace.graph import MessageGraph
from rollbook.trace.message import Message
from rollbook.trace.node import COLUMN_KINDS, TOKENS, Fork, ForkReason, Mark, NodeText
from rollbook.trace.record import FinalState
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["redact"]


def redact(trace: Trace, *nodes: int, task: Task | None = None, final_state: FinalState | None = None) -> Trace:
    """A copy of `trace` without the text and ids of `nodes`; the original is unchanged.

    `task` and `final_state`, where given, replace those that quote the text. Raises `RecordError` for a node that
    the trace does not hold.
    """
    missing = [node for node in nodes if not 0 <= node < len(trace.graph)]
    if missing:
        raise RecordError(f"trace {trace.id} has no nodes {missing} to redact")
    gone = np.zeros(len(trace.graph), np.bool_)
    gone[list(nodes)] = True
    tail = trace.tail if final_state is None else msgspec.structs.replace(trace.tail, final_state=final_state)
    redacted = replace(
        trace,
        head=trace.head if task is None else msgspec.structs.replace(trace.head, task=task),
        graph=_without(trace.graph, gone),
        calls=list(trace.calls),
        edges=list(trace.edges),
        tail=tail,
        sealed=False,
    )
    if trace.sealed:
        redacted.seal()
    return redacted


def _without(graph: MessageGraph, gone: npt.NDArray[np.bool_]) -> MessageGraph:
    """The graph with the text and the column rows of the nodes in `gone` left out."""
    counts = graph.counts()
    columns = {name: graph.columns[name].view[np.repeat(~gone, counts[:, kind])] for name, kind in COLUMN_KINDS.items()}
    counts[gone, TOKENS:] = 0
    beside = {graph.parent(node) for node in np.flatnonzero(gone).tolist()}
    texts = [
        _emptied(text, gone=bool(gone[node]), beside=graph.parent(node) in beside)
        for node, text in enumerate(graph.texts())
    ]
    found = MessageGraph()
    found.load(texts, counts, columns)
    found.load_experts(
        (node, kept) for node in graph.experts if not gone[node] and (kept := graph.experts.get(node)) is not None
    )
    found.experts.left_out = graph.experts.left_out
    return found


def _emptied(text: NodeText, *, gone: bool, beside: bool) -> NodeText:
    fork = _unspelled(text.fork) if text.fork is not None and beside else text.fork
    if not gone:
        return msgspec.structs.replace(text, fork=fork)
    return NodeText(message=Message(role=text.message.role), origin=text.origin, fork=fork, mark=Mark.REDACTED)


def _unspelled(fork: Fork) -> Fork:
    """The reason and position alone; a fork by drift keeps two empty spellings, for it must have some."""
    spelling = "" if fork.reason is ForkReason.DRIFT else None
    return Fork(reason=fork.reason, position=fork.position, kept=spelling, found=spelling)
