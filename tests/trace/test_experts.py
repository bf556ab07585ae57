"""Routed experts: bit for bit beside the ids that they are about, never where they are not known, and refused whole."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import RecordError
from rollbook.trace import ROOT, Agent, Fork, ForkReason, Message, Origin, Role, Trace, make_runs, samples
from rollbook.trace.experts import MAX_BYTES, Experts, RoutedExperts, encode_experts
from rollbook.trace.redact import redact
from rollbook.trace.wire import Cursor, decode_trace, encode_head, encode_part, encode_tail
from tests.store.made import finish, new_trace
from tests.trace.test_wire import small


def routed(seed: int, tokens: int, layers: int = 3, k: int = 2) -> Experts:
    return np.random.default_rng(seed).integers(0, 2**16, (tokens, layers, k), dtype=np.uint16)


def add(trace: Trace, sampled: int, experts: Experts | None, parent: int = -2, fork: Fork | None = None) -> int:
    """A turn of one scaffold token and `sampled` sampled ones."""
    return trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=len(trace.graph) - 1 if parent == -2 else parent,
        origin=Origin.POLICY,
        token_ids=np.arange(sampled + 1, dtype=np.int32),
        runs=make_runs((0, 1), (2, sampled)),
        logprobs=np.full(sampled, -1, np.float32),
        routed_experts=experts,
        fork=fork,
    )


@st.composite
def routed_traces(draw: st.DrawFn) -> tuple[Trace, list[Cursor]]:
    """Turns with and without routed experts, with forks, and cursors at which some were stored."""
    trace = new_trace("r")
    cursors: list[Cursor] = []
    for seed, (sampled, known, forks, stored) in enumerate(
        draw(
            st.lists(st.tuples(st.integers(1, 4), st.booleans(), st.booleans(), st.booleans()), min_size=1, max_size=6)
        )
    ):
        fork = Fork(reason=ForkReason.RETRY) if forks else None
        parent = draw(st.integers(0, len(trace.graph) - 1)) if forks else -2
        add(trace, sampled, routed(seed, sampled) if known else None, parent, fork)
        if stored:
            cursors.append(Cursor.end_of(trace))
    return finish(trace), cursors


@given(routed_traces())
def test_they_come_back_bit_by_bit_and_on_their_tokens(made: tuple[Trace, list[Cursor]]) -> None:
    trace, _ = made
    back = decode_trace(encode_head(trace), [encode_part(trace)], encode_tail(trace))
    for mine, other in zip(trace.graph, back.graph, strict=True):
        assert (mine.routed_experts is None) == (other.routed_experts is None)
        if mine.routed_experts is not None and other.routed_experts is not None:
            assert mine.routed_experts.tobytes() == other.routed_experts.tobytes()
            assert mine.routed_experts.shape == other.routed_experts.shape == (len(mine.sampled_ids), 3, 2)
            assert not other.routed_experts.flags.writeable
    assert back.graph.experts.nbytes == trace.graph.experts.nbytes
    for branch in back.graph.branches():
        found = next((each for each in samples(back, experts=True) if each.branch == branch.index), None)
        if found is None:
            continue
        rows = [(node, token) for node in branch.nodes.tolist() for token in range(len(back.graph[node].token_ids))]
        assert len(rows) == len(found)
        for place, (node, token) in enumerate(rows):
            view = back.graph[node]
            known = view.routed_experts is not None and token in view.sampled_positions
            if found.routed_experts is None or found.experts_known is None:
                assert not known
                continue
            assert bool(found.experts_known[place]) == known
            expected = np.zeros((3, 2), np.uint16)
            if view.routed_experts is not None and known:
                expected = view.routed_experts[view.sampled_positions.tolist().index(token)]
            assert found.routed_experts[place].tobytes() == expected.tobytes()
    assert all(each.routed_experts is None and each.experts_known is None for each in samples(back))


def test_a_trace_in_parts_has_each_part_once() -> None:
    trace = new_trace("r")
    parts = [encode_part(trace)]
    for seed in range(3):
        start = Cursor.end_of(trace)
        add(trace, 2, routed(seed, 2) if seed != 1 else None)
        parts.append(encode_part(trace, start))
    assert ["experts" in part for part in parts] == [False, True, False, True]
    back = decode_trace(encode_head(trace), parts, None)
    assert [node for node in back.graph.experts] == [1, 3]  # noqa: C416 - what iterating gives
    assert encode_part(back) == encode_part(trace)


@pytest.mark.parametrize(
    ("experts", "says"),
    [
        (routed(0, 3), r"uint16 of shape \(3, 3, 2\); want uint16, .* for 2 sampled tokens"),
        (routed(0, 2).astype(np.int32), "int32"),
        (routed(0, 2)[:, :, 0], r"shape \(2, 3\)"),
        (routed(0, 2)[:, :0], "no layer"),
        (routed(0, 2)[:, :, :0], "no layer"),
    ],
)
def test_what_does_not_fit_changes_nothing(experts: Experts, says: str) -> None:
    trace = new_trace("r")
    with pytest.raises(RecordError, match=says):
        add(trace, 2, experts)
    assert (len(trace.graph), len(trace.graph.tokens), len(trace.graph.experts)) == (1, 5, 0)


def test_a_message_without_sampled_tokens_has_none() -> None:
    with pytest.raises(RecordError, match="0 sampled tokens"):
        new_trace("r").graph.add(
            Message(role=Role.USER), parent=0, origin=Origin.USER, routed_experts=np.zeros((0, 3, 2), np.uint16)
        )


def test_a_trace_takes_so_many_bytes_and_no_more() -> None:
    held = RoutedExperts()
    held.nbytes = MAX_BYTES - 23
    with pytest.raises(RecordError, match="256 MiB"):
        held.check(routed(0, 2), 2)
    held.nbytes -= 1
    held.check(routed(0, 2), 2)


def test_what_the_caller_does_later_does_not_reach_them() -> None:
    trace, given_ = new_trace("r"), routed(0, 2)
    before = given_.tobytes()
    node = trace.graph[add(trace, 2, given_)]
    given_[:] = 0
    assert node.routed_experts is not None
    assert node.routed_experts.tobytes() == before


def test_what_was_left_out_is_not_taken_for_absent() -> None:
    trace = finish(new_trace("r"))
    trace.graph.experts.left_out = True
    with pytest.raises(RecordError, match="would lose them"):
        encode_experts(trace.graph.experts, 0)
    with pytest.raises(RecordError, match="would lose them"):
        encode_part(trace)
    trace = small()
    trace.graph.experts.left_out = True
    assert len(samples(trace)) == 1
    with pytest.raises(RecordError, match="read it with them"):
        samples(trace, experts=True)
    assert redact(trace, 0).graph.experts.left_out


def test_two_shapes_on_one_branch_are_no_array() -> None:
    trace = new_trace("r")
    add(trace, 2, routed(0, 2))
    add(trace, 2, routed(0, 2, layers=5))
    with pytest.raises(RecordError, match=r"\[\(3, 2\), \(5, 2\)\]"):
        samples(trace, experts=True)
    assert len(samples(trace)) == 1


def test_a_redacted_node_loses_its_own_only() -> None:
    trace = new_trace("r")
    add(trace, 2, routed(0, 2))
    add(trace, 3, routed(1, 3))
    left = redact(finish(trace), 1)
    assert list(left.graph.experts) == [2]
    kept = left.graph[2].routed_experts
    assert kept is not None
    assert kept.tobytes() == routed(1, 3).tobytes()


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        (b"\xc1", "damaged"),
        (msgspec.msgpack.encode([[1, 3, 2, b"\0"]]), "damaged"),
        (msgspec.msgpack.encode([[1, 0, 2, b""]]), "damaged"),
        (msgspec.msgpack.encode([[7, 1, 1, b"\0\0"]]), "node 7, which is not there"),
        (msgspec.msgpack.encode([[-1, 1, 1, b"\0\0"]]), "node -1, which is not there"),
        (msgspec.msgpack.encode([[1, 1, 1, b"\0\0\0\0"]] * 2), "has some already"),
        (msgspec.msgpack.encode([[1, 1, 1, b"\0\0"]]), "for 2 sampled tokens"),
    ],
)
def test_a_damaged_section_is_refused(rows: bytes, says: str) -> None:
    trace = small()
    with pytest.raises(RecordError, match=says):
        decode_trace(encode_head(trace), [encode_part(trace) | {"experts": rows}], None)


def test_an_untrained_seat_gives_none() -> None:
    trace = new_trace("r", agent=Agent(name="j", trainable=False))
    add(trace, 2, routed(0, 2), parent=ROOT, fork=Fork(reason=ForkReason.NEW_ROOT))
    assert len(samples(trace, experts=True)) == 0
