"""Random records for property tests: whole traces with forks, marks, several segments, versions, forced and rescored
tokens, missing logprobs, and text with lone surrogates.

The shape is drawn by hypothesis, so it shrinks; ids and logprobs come from a seeded generator, so drawing stays fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st

from rollbook.trace import (
    ROOT,
    Agent,
    Call,
    ContextPolicy,
    Edge,
    EdgeLabel,
    Ending,
    Fault,
    FinalState,
    Finish,
    Fork,
    ForkReason,
    LogprobKind,
    Mark,
    Message,
    NodeRef,
    Origin,
    ParseStatus,
    PolicyRecord,
    Reason,
    Role,
    RunKind,
    Runs,
    Sampling,
    Task,
    ToolCall,
    Trace,
    TraceHead,
    TurnReward,
    compress_runs,
    make_runs,
)

__all__ = ["calls", "endings", "forks", "grow", "json_values", "messages", "texts", "traces"]

LABELS = [*(label for label in EdgeLabel if label is not EdgeLabel.REWRITE_OF), "own_word"]
NON_POLICY = [origin for origin in Origin if origin is not Origin.POLICY]


@cache
def texts(max_size: int = 8) -> st.SearchStrategy[str]:
    """Any text, lone surrogates included."""
    return st.text(st.characters(exclude_categories=()), max_size=max_size)


@cache
def json_values() -> st.SearchStrategy[Any]:
    """Plain JSON data, with whole numbers beyond 64 bits, as a policy may write it."""
    leaves = st.none() | st.booleans() | st.integers(-(10**25), 10**25) | st.floats(allow_nan=False) | texts(4)
    return st.recursive(
        leaves, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(texts(3), inner, max_size=2), max_leaves=4
    )


@cache
def tool_calls() -> st.SearchStrategy[ToolCall]:
    """Attempted calls of every status."""
    return st.builds(
        ToolCall,
        id=st.sampled_from(["c0", "c1"]),
        name=st.none() | texts(3),
        arguments=st.none() | st.dictionaries(texts(3), json_values(), max_size=2),
        raw=texts(),
        status=st.sampled_from(ParseStatus),
        error=st.none() | texts(),
    )


@cache
def messages(role: Role | None = None) -> st.SearchStrategy[Message]:
    """Messages of any role, or of one."""
    return st.builds(
        Message,
        role=st.sampled_from(Role) if role is None else st.just(role),
        content=texts(),
        reasoning=st.none() | texts(),
        tool_calls=st.lists(tool_calls(), max_size=2).map(tuple),
        fault=st.none() | st.sampled_from(Fault),
        raw=st.none() | st.binary(max_size=4),
    )


@cache
def endings() -> st.SearchStrategy[Ending]:
    """Endings of every reason."""
    return st.builds(Ending, st.sampled_from(Reason), texts())


@st.composite
def forks(draw: st.DrawFn) -> Fork:
    """Forks of every reason; those by drift with position and spellings."""
    reason = draw(st.sampled_from(ForkReason))
    if reason is ForkReason.DRIFT:
        return Fork(reason=reason, position=draw(st.integers(0, 9)), kept=draw(texts(3)), found=draw(texts(3)))
    return Fork(reason=reason, detail=draw(texts(4)))


@cache
def calls() -> st.SearchStrategy[Call]:
    """Calls with any transform and kind of logprobs."""
    sampling = st.builds(
        Sampling,
        temperature=st.sampled_from([1.0, 0.5, 0.0]),
        top_p=st.sampled_from([1.0, 0.9]),
        seed=st.none() | st.integers(0, 2**40),
        stop=st.lists(texts(3), max_size=1).map(tuple),
    )
    return st.builds(
        Call,
        sampling=sampling,
        logprob_kind=st.none() | st.sampled_from(LogprobKind),
        finish=st.sampled_from(Finish),
        prompt_tokens=st.none() | st.integers(0, 99),
        error=st.none() | texts(4),
    )


def split(draw: st.DrawFn, total: int, values: Sequence[int]) -> Runs:
    """`total` tokens cut into at most one run for each of `values`, in order."""
    cuts = sorted(draw(st.lists(st.integers(1, total - 1), max_size=len(values) - 1, unique=True))) if total > 1 else []
    bounds = [0, *cuts, total]
    return make_runs(*zip(values, np.diff(bounds).tolist(), strict=False))


def _call(draw: st.DrawFn, trace: Trace, *, node: int | None, after: int) -> None:
    policy = draw(st.integers(0, len(trace.head.policies) - 1))
    trace.add_call(msgspec.structs.replace(draw(calls()), policy=policy, node=node, after=after))


def _turn(draw: st.DrawFn, trace: Trace, random: np.random.Generator, parent: int) -> dict[str, Any]:
    """The arrays of one policy turn; its calls enter the trace."""
    kinds = draw(st.lists(st.sampled_from([RunKind.SCAFFOLD, RunKind.SAMPLED, RunKind.FORCED]), max_size=4))
    runs = compress_runs([kind for kind in kinds for _ in range(int(random.integers(1, 4)))])
    sampled = int(runs[runs[:, 0] == RunKind.SAMPLED, 1].sum())
    total = int(runs[:, 1].sum())
    arrays: dict[str, Any] = {
        "token_ids": random.integers(0, 50_000, total, dtype=np.int32),
        "runs": runs,
        "logprobs": -random.random(sampled, dtype=np.float32) if draw(st.booleans()) else None,
    }
    if not sampled:
        return arrays
    if arrays["logprobs"] is not None:
        arrays["rescored"] = np.flatnonzero(random.random(sampled) < 0.2).astype(np.int32)
    if draw(st.booleans()):
        arrays["versions"] = split(draw, sampled, draw(st.lists(st.integers(0, 5), min_size=1, max_size=3)))
    if draw(st.integers(0, 5)):
        first = len(trace.calls)
        arrays["segments"] = split(draw, sampled, range(first, first + draw(st.integers(1, 3))))
        for _ in arrays["segments"]:
            _call(draw, trace, node=len(trace.graph), after=parent)
    return arrays


def grow(draw: st.DrawFn, trace: Trace, nodes: int) -> None:
    """Add `nodes` random nodes with their calls, and a failed call now and then."""
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    graph = trace.graph
    for _ in range(nodes):
        last = len(graph) - 1
        parent = draw(st.integers(ROOT, last)) if draw(st.integers(0, 3)) == 0 else last
        taken = any(graph.parent(node) == parent for node in range(len(graph)))
        fork = draw(forks()) if taken else None
        if draw(st.booleans()):
            arrays = _turn(draw, trace, random, parent)
            graph.add(draw(messages(Role.ASSISTANT)), parent=parent, origin=Origin.POLICY, fork=fork, **arrays)
            continue
        count = draw(st.integers(0, 5))
        graph.add(
            draw(messages()),
            parent=parent,
            origin=draw(st.sampled_from(NON_POLICY)),
            token_ids=random.integers(0, 50_000, count, dtype=np.int32),
            runs=make_runs((RunKind.SCAFFOLD, count // 2), (RunKind.CONTENT, count - count // 2)),
            fork=fork,
        )
    if draw(st.booleans()):
        _call(draw, trace, node=None, after=ROOT)


@st.composite
def heads(draw: st.DrawFn) -> TraceHead:
    """Heads with one to three policies, some of which do not train."""
    trainable = draw(st.lists(st.booleans(), min_size=1, max_size=3))
    return TraceHead(
        rollout=draw(st.sampled_from(["r0", "r1"])),
        group="g",
        task=Task(id="t", prompt=draw(texts()), target=draw(json_values())),
        agent=Agent(seat=draw(st.sampled_from(["solver", "judge"])), trainable=draw(st.integers(0, 5)) > 0),
        policies=tuple(
            PolicyRecord(
                name=draw(texts(3)),
                trainable=each,
                template_findings=tuple(draw(st.lists(texts(3), max_size=2))),
                template_settings=draw(st.dictionaries(texts(3), json_values(), max_size=2)),
            )
            for each in trainable
        ),
        context_policy=draw(st.sampled_from(ContextPolicy)),
        config=draw(st.dictionaries(texts(3), json_values(), max_size=1)),
        started=draw(st.none() | st.floats(0, 2e9)),
    )


def _decorate(draw: st.DrawFn, trace: Trace) -> None:
    """Marks, edges and rewards."""
    graph, turns = trace.graph, trace.policy_nodes.tolist()
    for node in turns:
        if draw(st.integers(0, 5)) == 0:
            graph.mark(node, draw(st.sampled_from([Mark.REJECTED, Mark.DEMOTED])))
    for label in draw(st.lists(st.sampled_from(LABELS), max_size=2 if len(graph) else 0)):
        source, target = draw(st.integers(0, len(graph) - 1)), draw(st.integers(0, len(graph) - 1))
        rollout = draw(st.sampled_from([None, "elsewhere"]))
        trace.add_edge(Edge(label=label, source=NodeRef(source), target=NodeRef(target, rollout)))
    values = st.floats(-2, 2)
    if draw(st.integers(0, 3)) == 0:
        trace.score_failed(draw(texts(4)))
    else:
        rewarded = draw(st.lists(st.sampled_from(turns), max_size=3)) if turns else []
        trace.score(
            draw(st.none() | values),
            draw(st.dictionaries(texts(3), values, max_size=2)),
            tuple(TurnReward(node, draw(values)) for node in rewarded),
        )
    if draw(st.booleans()):
        trace.update(final_state=FinalState(text=draw(st.none() | texts()), data=draw(json_values())))


@st.composite
def traces(draw: st.DrawFn, max_nodes: int = 8, *, sealed: bool = True) -> Trace:
    """Whole traces: calls, edges, marks, rewards and, where sealed, an ending."""
    trace = Trace(draw(heads()))
    grow(draw, trace, draw(st.integers(0, max_nodes)))
    _decorate(draw, trace)
    if sealed:
        trace.end(draw(endings()))
        trace.seal()
    return trace
