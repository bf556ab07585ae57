"""Steps of a rollout that came one by one, as prompt and reply, put back into one message graph.

Rule: a step whose prompt begins with the whole sequence of an earlier one goes on behind it, and only what the prompt
adds is new; one that does not is a path of its own, whatever they have in common, and counts as a mismatch. What was
sampled keeps its ids; what stands in a prompt is content there and is never trained. The steps are not changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.trace.call import Call
from rollbook.trace.message import Message, Origin, Role
from rollbook.trace.node import ROOT, Fork, ForkReason, TokenIds
from rollbook.trace.runs import NO_RUNS, RunKind, make_runs
from rollbook.trace.trace import Trace

__all__ = ["Step", "add_steps"]

_SAID, _ASKED = Message(role=Role.ASSISTANT), Message(role=Role.USER)


@dataclass(frozen=True, slots=True)
class Step:
    """One request and its reply, as others record them."""

    prompt: TokenIds
    """int32, shape (prompt tokens,): all that the engine was sent."""
    reply: TokenIds
    """int32, shape (sampled,): what it returned."""
    logprobs: npt.NDArray[np.float32] | None = None
    """float32, shape (sampled,); None: not recorded."""
    call: Call | None = None
    """How it was sampled; its places are set here. None: not recorded."""
    version: int | None = None
    """None: not recorded."""
    said: Message = _SAID
    """The reply as a message."""
    asked: Message = _ASKED
    """What the prompt adds, as a message."""


def add_steps(trace: Trace, steps: Iterable[Step]) -> int:
    """Add steps to a trace in their order; returns the mismatches: steps behind the first whose prompt continues none.

    Raises `RecordError` where a step breaks an invariant of the graph.
    """
    graph = trace.graph
    mismatches = 0
    for step in steps:
        parent = _longest(trace, step.prompt)
        mismatches += parent == ROOT and len(graph) > 0
        new = step.prompt[len(graph.path_ids(parent)) if parent != ROOT else 0 :]
        fork = _fork(trace, parent)
        if len(new) or parent == ROOT:
            parent = graph.add(
                step.asked,
                parent=parent,
                origin=Origin.HARNESS,
                token_ids=new,
                runs=make_runs((RunKind.CONTENT, len(new))),
                fork=fork,
            )
            fork = None
        _add_reply(trace, parent, step, fork)
    return mismatches


def _add_reply(trace: Trace, parent: int, step: Step, fork: Fork | None) -> None:
    sampled, segments = len(step.reply), NO_RUNS
    if step.call is not None:
        index = trace.add_call(msgspec.structs.replace(step.call, after=parent, node=len(trace.graph)))
        segments = make_runs((index, sampled))
    trace.graph.add(
        step.said,
        parent=parent,
        origin=Origin.POLICY,
        token_ids=step.reply,
        runs=make_runs((RunKind.SAMPLED, sampled)),
        logprobs=step.logprobs,
        versions=NO_RUNS if step.version is None else make_runs((step.version, sampled)),
        segments=segments,
        fork=fork,
    )


def _longest(trace: Trace, prompt: TokenIds) -> int:
    """The turn whose whole sequence the prompt begins with, of several the longest, then the newest; `ROOT`: none."""
    found, most = ROOT, 0
    turns: list[int] = trace.policy_nodes.tolist()
    for turn in turns:
        length = trace.graph.path_length(turn)
        if most <= length <= len(prompt) and np.array_equal(trace.graph.path_ids(turn), prompt[:length]):
            found, most = turn, length
    return found


def _fork(trace: Trace, parent: int) -> Fork | None:
    """Why a new child of `parent` is a fork; None where it is the first."""
    graph = trace.graph
    if all(graph.parent(node) != parent for node in range(len(graph))):
        return None
    return Fork(reason=ForkReason.NEW_ROOT if parent == ROOT else ForkReason.RETRY)
