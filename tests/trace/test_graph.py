"""The message graph: what enters, what is refused, and what is read back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.trace import (
    ROOT,
    Fork,
    ForkReason,
    Mark,
    Message,
    MessageGraph,
    Origin,
    Role,
    Trace,
    make_runs,
)
from tests.strategies import texts, traces
from tests.trace import naive

USER = Message(role=Role.USER, content="hi")
REPLY = Message(role=Role.ASSISTANT, content="ho")
RETRY = Fork(reason=ForkReason.RETRY)


def ids(*values: int) -> np.ndarray[Any, np.dtype[np.int32]]:
    return np.array(values, np.int32)


def reply(graph: MessageGraph, parent: int, **changes: Any) -> int:
    fields: dict[str, Any] = {
        "token_ids": ids(1, 2, 3),
        "runs": make_runs((0, 1), (2, 2)),
        "logprobs": np.array([-1, -2], np.float32),
        "segments": make_runs((0, 2)),
    }
    return graph.add(REPLY, parent=parent, **{"origin": Origin.POLICY, **fields, **changes})


def test_a_node_is_read_back_as_it_was_added() -> None:
    graph = MessageGraph()
    root = graph.add(USER, parent=ROOT, origin=Origin.USER, token_ids=ids(7), runs=make_runs((1, 1)))
    node = graph[reply(graph, root, rescored=ids(1), versions=make_runs((3, 1), (4, 1)))]
    assert (node.index, node.parent, node.message, node.origin) == (1, root, REPLY, Origin.POLICY)
    assert node.token_ids.tolist() == [1, 2, 3]
    assert node.sampled_ids.tolist() == [2, 3]
    assert node.logprobs is not None
    assert node.logprobs.tolist() == [-1, -2]
    assert (node.rescored.tolist(), node.versions.tolist()) == ([1], [[3, 1], [4, 1]])
    assert (node.segments.tolist(), node.fork, node.mark) == ([[0, 2]], None, None)
    assert [each.index for each in graph] == [0, 1]
    assert (len(graph), graph.sampled_count, graph.leaf_count) == (2, 2, 1)
    assert graph.nbytes > 0


def test_arrays_of_a_node_are_read_only() -> None:
    graph = MessageGraph()
    node = graph[reply(graph, ROOT)]
    with pytest.raises(ValueError, match="read-only"):
        node.token_ids[0] = 5


@pytest.mark.parametrize("index", [-1, 1])
def test_a_node_that_is_not_there(index: int) -> None:
    graph = MessageGraph()
    reply(graph, ROOT)
    with pytest.raises(IndexError):
        graph[index]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "parent ahead": ({"parent": 1}, "parent 1 is not a node"),
    "parent below the root": ({"parent": -2}, "parent -2"),
    "sampled by the environment": ({"origin": Origin.ENVIRONMENT}, "only the policy samples"),
    "ids of another type": ({"token_ids": np.array([1, 2, 3], np.int64)}, "must be int32"),
    "logprobs in rows": ({"logprobs": np.zeros((2, 2), np.float32)}, "must be flat"),
    "ids in rows": ({"token_ids": np.zeros((3, 1), np.int32)}, "must be flat"),
    "runs of another type": ({"runs": np.array([[0, 1], [2, 2]], np.int64)}, "must be int32"),
    "negative id": ({"token_ids": ids(1, -2, 3)}, "negative"),
    "runs too short": ({"runs": make_runs((2, 2))}, "runs cover 2 of 3"),
    "runs too long": ({"runs": make_runs((0, 2), (2, 2))}, "runs cover 4 of 3"),
    "empty run": ({"runs": np.array([[0, 1], [2, 2], [1, 0]], np.int32)}, "no run"),
    "negative run": ({"runs": np.array([[0, 2], [2, 2], [0, -1]], np.int32)}, "no run"),
    "no runs": ({"runs": make_runs()}, "runs cover 0 of 3"),
    "kind 4": ({"runs": np.array([[4, 1], [2, 2]], np.int32)}, "no run"),
    "kind -1": ({"runs": np.array([[-1, 1], [2, 2]], np.int32)}, "no run"),
    "a logprob short": ({"logprobs": np.array([-1], np.float32)}, "1 logprobs"),
    "logprobs in double": ({"logprobs": np.array([-1.0, -2.0])}, "float64"),
    "logprob NaN": ({"logprobs": np.array([-1, np.nan], np.float32)}, "not finite or above 0"),
    "logprob -inf": ({"logprobs": np.array([-1, -np.inf], np.float32)}, "not finite or above 0"),
    "logprob above 0": ({"logprobs": np.array([-1, 0.01], np.float32)}, "not finite or above 0"),
    "rescored without logprobs": ({"logprobs": None, "rescored": ids(0)}, "without logprobs"),
    "rescored behind the end": ({"rescored": ids(2)}, "rescored"),
    "rescored before the start": ({"rescored": ids(-1)}, "rescored"),
    "rescored twice": ({"rescored": ids(1, 1)}, "rescored"),
    "versions too short": ({"versions": make_runs((1, 1))}, "versions cover 1 of 2"),
    "negative version": ({"versions": make_runs((-1, 2))}, "versions hold"),
    "versions that cancel out": ({"versions": np.array([[1, 3], [2, -1]], np.int32)}, "versions hold"),
    "segments too long": ({"segments": make_runs((0, 3))}, "segments cover 3 of 2"),
    "negative call": ({"segments": make_runs((-1, 2))}, "segments hold"),
    "second root": ({}, "a second root needs a fork reason"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_breaks_an_invariant_is_refused_and_changes_nothing(case: str) -> None:
    changes, problem = REFUSED[case]
    graph = MessageGraph()
    graph.add(USER, parent=ROOT, origin=Origin.USER)
    with pytest.raises(RecordError, match=problem):
        reply(graph, **{"parent": ROOT if case == "second root" else 0, **changes})
    assert (len(graph), len(graph.tokens), len(graph.table), graph.sampled_count) == (1, 0, 1, 0)
    reply(graph, 0)


def test_a_second_child_needs_a_reason() -> None:
    graph = MessageGraph()
    reply(graph, ROOT)
    reply(graph, 0)
    with pytest.raises(RecordError, match="a second child of node 0 needs a fork reason"):
        reply(graph, 0)
    assert graph[reply(graph, 0, fork=RETRY)].fork == RETRY


def test_a_logprob_may_lie_above_0_by_float_error() -> None:
    graph = MessageGraph()
    reply(graph, ROOT, logprobs=np.array([1e-4, -1], np.float32))


def test_marks() -> None:
    graph = MessageGraph()
    root = graph.add(USER, parent=ROOT, origin=Origin.USER)
    turn = reply(graph, root)
    graph.mark(turn, Mark.DEMOTED)
    graph.mark(turn, Mark.DEMOTED)
    with pytest.raises(RecordError, match="already marked 'demoted'"):
        graph.mark(turn, Mark.REJECTED)
    with pytest.raises(RecordError, match="cannot be 'rejected'"):
        graph.mark(root, Mark.REJECTED)
    with pytest.raises(RecordError, match="use `redact`"):
        graph.mark(turn, Mark.REDACTED)
    for stray in (-1, 2):
        with pytest.raises(RecordError, match="not in this graph"):
            graph.mark(stray, Mark.DEMOTED)
    assert graph.marks == {turn: Mark.DEMOTED}
    assert graph[turn].mark is Mark.DEMOTED
    assert graph.texts(turn) == graph.texts()[turn:]


@given(traces())
def test_branches_are_the_paths_to_the_leaves(trace: Trace) -> None:
    graph = trace.graph
    branches = graph.branches()
    assert [branch.leaf for branch in branches] == naive.leaves(graph)
    assert [branch.nodes.tolist() for branch in branches] == [naive.path(graph, leaf) for leaf in naive.leaves(graph)]
    assert [branch.index for branch in branches] == list(range(graph.leaf_count))


def test_a_path_without_forks_is_a_view() -> None:
    graph = MessageGraph()
    last = ROOT
    for _ in range(5):
        last = reply(graph, last)
    assert graph.path_ids(last).base is not None
    assert graph.path_ids(ROOT).tolist() == []
    assert graph.path(ROOT).tolist() == []


def test_locate_finds_the_deepest_node_that_says_the_same() -> None:
    graph = MessageGraph()
    root = graph.add(USER, parent=ROOT, origin=Origin.USER)
    first = reply(graph, root)
    assert graph.locate([USER, REPLY, USER]) == (first, 2)
    assert graph.locate([REPLY]) == (ROOT, 0)
    assert graph.locate([USER, REPLY]) == (first, 2)
    again = reply(graph, root, fork=RETRY)
    assert graph.locate([REPLY], known=root) == (again, 1), "the newest of the same text"


@given(st.lists(texts(), max_size=6))
def test_locate_walks_any_text(contents: list[str]) -> None:
    graph = MessageGraph()
    said = [Message(role=Role.USER, content=content) for content in contents]
    last = ROOT
    for message in said:
        last = graph.add(message, parent=last, origin=Origin.USER)
    assert graph.locate(said) == (last, len(said))


@given(traces(), st.integers(0, 9))
def test_counts_are_what_each_node_has(trace: Trace, first: int) -> None:
    counts = trace.graph.counts(first)
    assert counts.shape == (max(0, len(trace.graph) - first), 9)
    for node, row in enumerate(counts.tolist(), first):
        found = trace.graph[node]
        lengths = [len(found.token_ids), len(found.runs), len(found.sampled_ids)]
        assert row[0] == found.parent
        assert row[2:5] == lengths
        assert row[6:] == [len(found.rescored), len(found.versions), len(found.segments)]
