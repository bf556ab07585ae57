"""One property for each invariant of the record. That content never becomes a control token is shown where text becomes
ids, with the renderer; here, that text never changes ids."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.trace import (
    NO_RUNS,
    ROOT,
    Call,
    Edge,
    EdgeLabel,
    Ending,
    Finish,
    Fork,
    ForkReason,
    Mark,
    Message,
    MessageGraph,
    Node,
    NodeRef,
    Origin,
    Reason,
    Role,
    RunKind,
    Sampling,
    Summary,
    Trace,
    TraceTail,
    expand_runs,
    redact,
    samples,
    summarise,
)
from rollbook.trace.wire import encode_head, encode_part, encode_tail
from tests.strategies import forks, messages, traces
from tests.trace import naive


def arrays(node: Node) -> dict[str, Any]:
    """The arrays of a node as `add` takes them."""
    return {
        "token_ids": node.token_ids,
        "runs": node.runs,
        "logprobs": node.logprobs,
        "rescored": node.rescored,
        "versions": node.versions,
        "segments": node.segments,
    }


def stored(trace: Trace) -> dict[str, bytes]:
    """All that is written of a trace."""
    return {"head": encode_head(trace), "tail": encode_tail(trace), **encode_part(trace)}


@given(traces())
def test_invariant_1_ids_along_a_path_are_those_that_each_node_adds(trace: Trace) -> None:
    graph = trace.graph
    given_ids = [node.token_ids.copy() for node in graph]
    views = [graph.path_ids(node) for node in range(len(graph))]
    grown = MessageGraph()
    for node in graph:
        grown.add(node.message, parent=node.parent, origin=node.origin, fork=node.fork, **arrays(node))
    for node in range(len(graph)):
        nodes = naive.path(graph, node)
        want = [token for each in nodes for token in given_ids[each].tolist()]
        assert graph.path(node).tolist() == nodes
        assert views[node].tolist() == grown.path_ids(node).tolist() == want
        assert graph.path_length(node) == len(want)
        assert graph.path_column(node, np.array([7], np.int32)).view.tolist() == [*want, 7]


@given(traces())
def test_invariant_1_what_rewrites_a_turn_holds_no_sampled_tokens(trace: Trace) -> None:
    open_trace = Trace(trace.head, trace.graph)
    for node in trace.graph:
        edge = Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(node.index), target=NodeRef(0))
        if len(node.sampled_ids):
            with pytest.raises(RecordError, match="holds sampled tokens"):
                open_trace.add_edge(edge)
        else:
            open_trace.add_edge(edge)


def spoiled(values: np.ndarray[Any, Any], how: str, at: int) -> np.ndarray[Any, Any]:
    """`values` with one thing wrong."""
    changed = values.copy()
    match how:
        case "short":
            return changed[:-1]
        case "long":
            return np.append(changed, changed[-1:])
        case "float64":
            return changed.astype(np.float64)
        case _:
            changed[at % len(changed)] = float(how)
            return changed


@given(traces(), st.sampled_from(["short", "long", "float64", "nan", "inf", "-inf", "0.01"]), st.integers(0, 99))
def test_invariant_2_a_finite_logprob_stands_for_each_sampled_token(trace: Trace, how: str, at: int) -> None:
    for node in trace.graph:
        sampled = int((expand_runs(node.runs) == RunKind.SAMPLED).sum())
        assert len(node.sampled_ids) == sampled
        if node.logprobs is None or not sampled:
            continue
        assert len(node.logprobs) == sampled
        fresh = MessageGraph()
        wrong = arrays(node) | {"logprobs": spoiled(node.logprobs, how, at), "rescored": node.rescored[:0]}
        with pytest.raises(RecordError, match="logprob"):
            fresh.add(node.message, parent=ROOT, origin=node.origin, **wrong)
        assert len(fresh) == len(fresh.tokens) == len(fresh.runs) == 0


@given(traces(), st.data())
def test_invariant_3_text_never_changes_ids(trace: Trace, data: st.DataObject) -> None:
    other = MessageGraph()
    for node in trace.graph:
        other.add(data.draw(messages()), parent=node.parent, origin=node.origin, fork=node.fork, **arrays(node))
    for node in trace.graph:
        assert other[node.index].token_ids.tolist() == node.token_ids.tolist()


@given(traces(), st.data())
def test_invariant_4_a_fork_carries_its_reason(trace: Trace, data: st.DataObject) -> None:
    seen: set[int] = set()
    for node in trace.graph:
        assert node.fork is not None or node.parent not in seen
        seen.add(node.parent)
    if not seen:
        return
    graph = Trace(trace.head, MessageGraph()).graph
    for node in trace.graph:
        graph.add(node.message, parent=node.parent, origin=node.origin, fork=node.fork, **arrays(node))
    at = data.draw(st.sampled_from(sorted(seen)))
    with pytest.raises(RecordError, match="needs a fork reason"):
        graph.add(Message(role=Role.USER), parent=at, origin=Origin.USER)
    fork = data.draw(forks())
    added = graph.add(Message(role=Role.USER), parent=at, origin=Origin.USER, fork=fork)
    assert graph[added].fork == fork


@pytest.mark.parametrize("missing", ["position", "kept", "found"])
def test_invariant_4_a_drift_says_where_and_both_spellings(missing: str) -> None:
    drift: dict[str, Any] = {"position": 3, "kept": "ab", "found": "a b"}
    Fork(reason=ForkReason.DRIFT, **drift)
    with pytest.raises(RecordError, match="both spellings"):
        Fork(reason=ForkReason.DRIFT, **{**drift, missing: None})
    with pytest.raises(RecordError, match="position -1"):
        Fork(reason=ForkReason.DRIFT, **{**drift, "position": -1})


@given(traces(), st.none() | st.integers(0, 30))
def test_invariant_5_every_sampled_token_is_trained_once_or_lost_with_a_reason(
    trace: Trace, max_tokens: int | None
) -> None:
    found = samples(trace, max_tokens=max_tokens)
    captured = sum(len(node.sampled_ids) for node in trace.graph)
    assert found.ledger.captured == captured == found.ledger.trained + found.ledger.lost.total()
    assert found.ledger.trained == sum(int(sample.loss_mask.sum()) for sample in found)
    trained: set[tuple[int, int]] = set()
    leaves = naive.leaves(trace.graph)
    for sample in found:
        assert not (sample.loss_mask & ~sample.sampled).any()
        nodes = naive.path(trace.graph, leaves[sample.branch])
        places = [(node, token) for node in nodes for token in range(len(trace.graph[node].token_ids))]
        mine = {place for place, trains in zip(places, sample.loss_mask.tolist(), strict=True) if trains}
        assert not mine & trained
        trained |= mine
    turns = trace.policy_nodes.tolist()
    bound = {turns[turn] for sample in found for turn, _ in sample.turn_rewards}
    unbound = {turns[turn] for turn in found.unbound_turn_rewards}
    assert bound | unbound == {each.node for each in trace.tail.turn_rewards}
    assert bound == {node for node, _ in trained} & {each.node for each in trace.tail.turn_rewards}


@given(traces())
def test_invariant_6_absent_is_not_zero(trace: Trace) -> None:
    reread = msgspec.msgpack.decode(msgspec.msgpack.encode(TraceTail()), type=TraceTail)
    assert (reread.reward, reread.ending, reread.times, reread.finished) == (None, None, None, None)
    row = summarise(trace)
    assert row.reward == trace.reward
    assert (row.logprob_mean is None) == (
        not any(node.logprobs is not None and len(node.logprobs) for node in trace.graph)
    )
    for sample in samples(trace):
        assert sample.reward == trace.reward
        for node, given_logprobs in zip(sample.turn_id.tolist(), sample.logprobs.tolist(), strict=True):
            known = node >= 0 and trace.turns()[node].logprobs is not None
            assert np.isnan(given_logprobs) != known


MUTATIONS: dict[str, Callable[[Trace], object]] = {
    "add a call": lambda trace: trace.add_call(Call(sampling=Sampling(), finish=Finish.STOP)),
    "add an edge": lambda trace: trace.add_edge(Edge(label="own", source=NodeRef(0, "x"), target=NodeRef(0, "x"))),
    "end": lambda trace: trace.end(Ending(Reason.CANCELLED)),
    "note": lambda trace: trace.note("where", "what"),
    "score": lambda trace: trace.score(1.0),
    "fail to score": lambda trace: trace.score_failed("why"),
    "update": lambda trace: trace.update(metrics={"a": 1.0}),
    "add a node": lambda trace: trace.graph.add(
        Message(role=Role.USER), parent=ROOT, origin=Origin.USER, fork=Fork(reason=ForkReason.RETRY)
    ),
    "load nodes": lambda trace: trace.graph.load([], np.zeros((0, 9), np.int32), {}),
    "mark": lambda trace: trace.graph.mark(0, Mark.DEMOTED),
}


@given(traces())
def test_invariant_7_a_sealed_trace_never_changes(trace: Trace) -> None:
    before = stored(trace)
    for change in MUTATIONS.values():
        with pytest.raises(RecordError, match="sealed"):
            change(trace)
    assert stored(trace) == before


SECRET = "a secret that nobody else says"


@given(traces(), st.data())
def test_invariant_7_a_redaction_takes_text_and_ids_together(trace: Trace, data: st.DataObject) -> None:
    if not len(trace.graph):
        return
    spoken = Trace(trace.head, MessageGraph(), trace.calls, trace.edges, trace.tail)
    for node in trace.graph:
        message = msgspec.structs.replace(node.message, content=f"{SECRET} {node.index}.")
        spoken.graph.add(message, parent=node.parent, origin=node.origin, fork=node.fork, **arrays(node))
    spoken.seal()
    before = stored(spoken)
    gone = data.draw(st.integers(0, len(trace.graph) - 1))
    left = redact(spoken, gone)
    assert stored(spoken) == before
    assert left.sealed
    node = left.graph[gone]
    assert (node.mark, node.message) == (Mark.REDACTED, Message(role=node.message.role))
    assert len(node.token_ids) == len(node.segments) == 0
    assert f"{SECRET} {gone}." not in repr([left, list(left.graph)])
    for other in range(len(trace.graph)):
        if other != gone:
            assert left.graph[other].message == spoken.graph[other].message
            assert left.graph[other].token_ids.tolist() == spoken.graph[other].token_ids.tolist()
    assert left.graph.sampled_count == spoken.graph.sampled_count - len(spoken.graph[gone].sampled_ids)
    for sample in samples(left):
        assert gone not in naive.path(left.graph, naive.leaves(left.graph)[sample.branch])
    assert isinstance(summarise(left), Summary)
    assert NO_RUNS.shape == node.runs.shape
