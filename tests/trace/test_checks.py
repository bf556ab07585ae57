"""One new node and many stored ones are held to the same rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.trace import ROOT, Mark, Message, MessageGraph, Origin, Role, Trace
from rollbook.trace.checks import check_mark
from rollbook.trace.node import COLUMN_KINDS, LOGPROBS, ORIGIN, ORIGINS, PARENT, SAMPLED, TABLE_WIDTH, TOKENS, NodeText
from tests.strategies import traces

Columns = dict[str, np.ndarray[Any, Any]]
ODD = [-(2**31), -2, -1, 0, 1, 2, 3, 4, 7, 2**31 - 1]


def parts(graph: MessageGraph) -> tuple[list[NodeText], np.ndarray[Any, Any], Columns]:
    """A graph in the form that `load` takes, as copies."""
    columns = {name: column.view.copy() for name, column in graph.columns.items()}
    return graph.texts(), graph.counts(), columns


def added(texts: list[NodeText], counts: np.ndarray[Any, Any], columns: Columns) -> MessageGraph:
    """The same nodes by `add` and `mark`, one after the other; what `add` cannot be asked is refused here."""
    ends = counts.astype(object).cumsum(axis=0)
    if any(ends[-1][kind] != len(columns[name]) for name, kind in COLUMN_KINDS.items()) or (counts[:, 2:] < 0).any():
        raise RecordError("the counts do not fit")
    graph = MessageGraph()
    for node, text in enumerate(texts):
        start = ends[node - 1] if node else [0] * TABLE_WIDTH
        cut = {name: columns[name][start[kind] : ends[node][kind]] for name, kind in COLUMN_KINDS.items()}
        has_logprobs = counts[node, LOGPROBS] or not counts[node, SAMPLED]
        arrays = {**cut, "token_ids": cut["tokens"], "logprobs": cut["logprobs"] if has_logprobs else None}
        del arrays["tokens"]
        code = int(counts[node, ORIGIN])
        if not 0 <= code < len(ORIGINS) or ORIGINS[code] is not text.origin:
            raise RecordError("the origins differ")
        graph.add(text.message, parent=int(counts[node, PARENT]), origin=text.origin, fork=text.fork, **arrays)
        if graph.counts(node)[0, SAMPLED] != counts[node, SAMPLED]:
            raise RecordError("the sampled counts differ")
        if text.mark is not None:
            graph.mark(node, text.mark)
    return graph


def outcome(build: Any) -> MessageGraph | None:
    try:
        return build()
    except RecordError:
        return None


@settings(max_examples=300)
@given(traces(), st.data())
def test_load_and_add_refuse_the_same(trace: Trace, data: st.DataObject) -> None:
    texts, counts, columns = parts(trace.graph)
    if not texts:
        return
    arrays = {"counts": counts, **columns}
    name = data.draw(st.sampled_from([name for name, array in arrays.items() if array.size]))
    place = data.draw(st.integers(0, arrays[name].size - 1))
    odd = st.sampled_from([0.0, -1.0, 0.5, np.nan, np.inf, -np.inf]) if name == "logprobs" else st.sampled_from(ODD)
    arrays[name].flat[place] = data.draw(odd)

    def load() -> MessageGraph:
        graph = MessageGraph()
        graph.load(texts, counts, columns)
        return graph

    loaded, one_by_one = outcome(load), outcome(lambda: added(texts, counts, columns))
    assert (loaded is None) == (one_by_one is None)
    if loaded is not None and one_by_one is not None:
        assert loaded.table.view.tolist() == one_by_one.table.view.tolist()
        assert loaded.marks == one_by_one.marks
        assert [node.fork for node in loaded] == [node.fork for node in one_by_one]


def small() -> MessageGraph:
    """A question and an answer of one scaffold and two sampled tokens."""
    graph = MessageGraph()
    graph.add(Message(role=Role.USER, content="q"), parent=ROOT, origin=Origin.USER)
    graph.add(
        Message(role=Role.ASSISTANT, content="a"),
        parent=0,
        origin=Origin.POLICY,
        token_ids=np.array([1, 2, 3], np.int32),
        runs=np.array([[0, 1], [2, 2]], np.int32),
        logprobs=np.array([-1, -2], np.float32),
        rescored=np.array([0, 1], np.int32),
        versions=np.array([[5, 1], [6, 1]], np.int32),
        segments=np.array([[0, 2]], np.int32),
    )
    return graph


SPOILED: dict[str, tuple[str, int, float]] = {
    "parent 1 of node 1 does not come before it": ("counts", TABLE_WIDTH + PARENT, 1),
    "forks at -1 without a reason": ("counts", TABLE_WIDTH + PARENT, -1),
    "parent -2": ("counts", PARENT, -2),
    "unknown origin": ("counts", ORIGIN, 99),
    "of another in the table": ("counts", ORIGIN, 1),
    "does not fit the messages": ("counts", 2, -1),
    "does not fit the column 'tokens'": ("counts", 2, 1),
    "another count of sampled tokens": ("counts", SAMPLED, 1),
    "unknown kind of run": ("runs", 0, 4),
    "a run is empty": ("runs", 1, 0),
    "runs do not cover": ("runs", 1, 2),
    "a token id is negative": ("tokens", 0, -1),
    "a logprob is not finite": ("logprobs", 0, float("nan")),
    "rescored positions do not rise": ("rescored", 0, 1),
    "versions do not cover": ("versions", 1, 2),
    "segments do not cover": ("segments", 1, 1),
}


@pytest.mark.parametrize("problem", SPOILED)
def test_each_rule_over_many_nodes(problem: str) -> None:
    texts, counts, columns = parts(small())
    name, place, value = SPOILED[problem]
    ({"counts": counts, **columns})[name].flat[place] = value
    graph = MessageGraph()
    with pytest.raises(RecordError, match=problem):
        graph.load(texts, counts, columns)
    assert len(graph) == len(graph.tokens) == len(graph.table) == 0


@pytest.mark.parametrize(("name", "place"), [("versions", 0), ("segments", 0)])
def test_spans_hold_no_negative_value(name: str, place: int) -> None:
    texts, counts, columns = parts(small())
    columns[name].flat[place] = -1
    with pytest.raises(RecordError, match=f"{name} do not cover"):
        MessageGraph().load(texts, counts, columns)


def test_spans_that_cancel_out_do_not_cover() -> None:
    texts, counts, columns = parts(small())
    columns["versions"][:, 1] = (3, -1)
    with pytest.raises(RecordError, match="versions do not cover"):
        MessageGraph().load(texts, counts, columns)


def test_rescored_positions_need_logprobs() -> None:
    texts, counts, columns = parts(small())
    counts[1, LOGPROBS], columns["logprobs"] = 0, columns["logprobs"][:0]
    with pytest.raises(RecordError, match="rescored positions do not rise within the logprobs"):
        MessageGraph().load(texts, counts, columns)


def test_half_the_logprobs_are_refused() -> None:
    texts, counts, columns = parts(small())
    counts[1, LOGPROBS], columns["logprobs"] = 1, columns["logprobs"][:1]
    with pytest.raises(RecordError, match="not one logprob per sampled token"):
        MessageGraph().load(texts, counts, columns)


def test_counts_that_would_wrap_in_32_bits_do_not_fit() -> None:
    counts = np.zeros((4, TABLE_WIDTH), np.int32)
    counts[:, PARENT], counts[:, TOKENS] = range(ROOT, 3), 2**30
    counts[:, ORIGIN] = ORIGINS.index(Origin.USER)
    columns = {name: column[:0] for name, column in parts(small())[2].items()}
    texts = [NodeText(message=Message(role=Role.USER), origin=Origin.USER)] * 4
    with pytest.raises(RecordError, match="does not fit the column 'tokens'"):
        MessageGraph().load(texts, counts, columns)


def test_the_table_has_a_row_for_each_message() -> None:
    texts, counts, columns = parts(small())
    with pytest.raises(RecordError, match="does not fit the messages"):
        MessageGraph().load(texts[:1], counts, columns)


@pytest.mark.parametrize("mark", [Mark.REJECTED, Mark.DEMOTED])
def test_only_turns_of_the_policy_are_marked(mark: Mark) -> None:
    check_mark(mark, Origin.POLICY)
    check_mark(Mark.REDACTED, Origin.USER)
    texts, counts, columns = parts(small())
    texts[0] = NodeText(message=texts[0].message, origin=Origin.USER, mark=mark)
    with pytest.raises(RecordError, match=f"cannot be '{mark}'"):
        MessageGraph().load(texts, counts, columns)


@pytest.mark.parametrize("node", [0, 1])
def test_what_is_marked_redacted_holds_neither_text_nor_ids(node: int) -> None:
    texts, counts, columns = parts(small())
    text = texts[node]
    message = text.message if node == 0 else Message(role=text.message.role)
    texts[node] = NodeText(message=message, origin=text.origin, mark=Mark.REDACTED)
    with pytest.raises(RecordError, match="redacted and still holds"):
        MessageGraph().load(texts, counts, columns)


def test_only_the_policy_samples_among_many() -> None:
    texts, counts, columns = parts(small())
    counts[1, ORIGIN] = ORIGINS.index(Origin.SYNTHETIC)
    texts[1] = NodeText(message=texts[1].message, origin=Origin.SYNTHETIC)
    with pytest.raises(RecordError, match="only the policy samples"):
        MessageGraph().load(texts, counts, columns)
