"""The wire form: what is written comes back bit by bit, and what is damaged is refused as such."""

from __future__ import annotations

import itertools
import tracemalloc
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import NewerFormat, RecordError
from rollbook.trace import (
    ROOT,
    Annotation,
    Call,
    Edge,
    Ending,
    FinalState,
    Finish,
    Message,
    NodeRef,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    Sampling,
    Task,
    Trace,
    TraceHead,
    TurnReward,
    make_runs,
    samples,
)
from rollbook.trace.node import COLUMN_KINDS
from rollbook.trace.wire import (
    WIRE_VERSION,
    Cursor,
    Sections,
    check_version,
    decode_record,
    decode_trace,
    encode_head,
    encode_part,
    encode_record,
    encode_tail,
)
from tests.strategies import traces

ARRAYS = ("token_ids", "sampled", "loss_mask", "logprobs", "policy_version", "turn_id")


def small(**fields: Any) -> Trace:
    """A question, an answer of two sampled tokens, its call and an edge; not yet ended."""
    head = TraceHead(rollout="r", group="g", task=Task(id="t", prompt="p"), policies=(PolicyRecord(name="m"),))
    trace = Trace(msgspec.structs.replace(head, **fields))
    trace.graph.add(Message(role=Role.USER, content="q"), parent=ROOT, origin=Origin.USER)
    call = trace.add_call(Call(node=1, after=0, sampling=Sampling(), finish=Finish.STOP))
    trace.graph.add(
        Message(role=Role.ASSISTANT, content="a"),
        parent=0,
        origin=Origin.POLICY,
        token_ids=np.array([1, 2, 3], np.int32),
        runs=make_runs((0, 1), (2, 2)),
        logprobs=np.array([-1, -2], np.float32),
        segments=make_runs((call, 2)),
    )
    trace.add_edge(Edge(label="own", source=NodeRef(1), target=NodeRef(0)))
    return trace


def ended(trace: Trace) -> Trace:
    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.score(1.0, {"part": 0.5}, (TurnReward(1, 0.25),))
    return trace


def reread(trace: Trace) -> Trace:
    return decode_trace(encode_head(trace), [encode_part(trace)], encode_tail(trace), sealed=trace.sealed)


def cut(trace: Trace, cursors: list[Cursor]) -> list[Sections]:
    """The parts that a run would have stored at `cursors`: each what an older trace gained."""
    bounds = [Cursor(), *cursors, Cursor.end_of(trace)]
    return [encode_part(_first(trace, end), start) for start, end in itertools.pairwise(bounds)]


def _first(trace: Trace, end: Cursor) -> Trace:
    """The trace as it was at `end`."""
    part = Trace(trace.head, calls=trace.calls[: end.calls], edges=trace.edges[: end.edges])
    counts = trace.graph.counts()[: end.nodes]
    totals = counts.sum(axis=0)
    columns = {name: trace.graph.columns[name].view[: totals[kind]] for name, kind in COLUMN_KINDS.items()}
    part.graph.load(trace.graph.texts()[: end.nodes], counts, columns)
    return part


def assert_same(left: Trace, right: Trace) -> None:
    assert (left.head, left.tail, left.calls, left.edges) == (right.head, right.tail, right.calls, right.edges)
    assert left.sealed == right.sealed
    assert left.graph.messages == right.graph.messages
    assert left.graph.texts() == right.graph.texts()
    assert left.graph.table.view.tobytes() == right.graph.table.view.tobytes()
    for name in COLUMN_KINDS:
        mine, other = left.graph.columns[name].view, right.graph.columns[name].view
        assert (mine.dtype, mine.shape, mine.tobytes()) == (other.dtype, other.shape, other.tobytes())
    for one, two in zip(samples(left), samples(right), strict=True):
        for name in ARRAYS:
            mine, other = getattr(one, name), getattr(two, name)
            assert (mine.dtype, mine.tobytes()) == (other.dtype, other.tobytes())
        assert (one.turn_rewards, one.samplings, one.ending) == (two.turn_rewards, two.samplings, two.ending)


@given(traces(), st.data())
def test_a_trace_in_parts_comes_back_bit_by_bit(trace: Trace, data: st.DataObject) -> None:
    places = st.tuples(*(st.integers(0, n) for n in (len(trace.graph), len(trace.calls), len(trace.edges))))
    drawn = data.draw(st.lists(places, max_size=3))
    cursors = [Cursor(*place) for place in zip(*(sorted(axis) for axis in zip(*drawn, strict=True)), strict=True)]
    parts = cut(trace, cursors)
    again = decode_trace(encode_head(trace), parts, encode_tail(trace))
    assert_same(trace, again)
    assert (encode_head(again), encode_part(again), encode_tail(again)) == (
        encode_head(trace),
        encode_part(trace),
        encode_tail(trace),
    )


@given(traces(sealed=False))
def test_a_running_trace_goes_on_where_it_was_stored(trace: Trace) -> None:
    again = decode_trace(encode_head(trace), [encode_part(trace)], None)
    assert not again.sealed
    assert again.tail == Trace(trace.head).tail
    again.end(Ending(Reason.INTERRUPTED))
    again.seal()
    assert_same(again, reread(again))


def test_a_policy_that_was_stored_without_findings_and_settings_has_none() -> None:
    trace = ended(small())
    (policy,) = trace.head.policies
    head = msgspec.msgpack.decode(encode_head(trace))
    head["policies"] = [{"name": policy.name, "trainable": policy.trainable}]
    read = decode_trace(msgspec.msgpack.encode(head), [encode_part(trace)], encode_tail(trace))
    assert (read.head.policies, policy.template_findings, policy.template_settings) == ((policy,), (), {})


def test_a_part_of_nothing_is_fine() -> None:
    trace = ended(small())
    parts = [encode_part(trace), encode_part(trace, Cursor.end_of(trace))]
    assert_same(trace, decode_trace(encode_head(trace), parts, encode_tail(trace), sealed=False))


def test_parts_follow_each_other() -> None:
    trace = ended(small())
    part = encode_part(trace)
    for parts in ([part, part], [encode_part(trace, Cursor(1, 1, 1))]):
        with pytest.raises(RecordError, match="does not follow"):
            decode_trace(encode_head(trace), parts, encode_tail(trace))


def test_numbers_beyond_64_bits_and_lone_surrogates_survive() -> None:
    odd = {"n": 10**30, "m": -(10**30), "s": "\ud83d\u0100é", "\udc00": [True, 2**64 - 1, None, 1.5]}
    trace = ended(small(config=odd, task=Task(id="t", prompt="p", data={"raw": b"\xff"})))
    assert_same(trace, reread(trace))


def test_versions() -> None:
    check_version(WIRE_VERSION, "it")
    with pytest.raises(NewerFormat, match="Upgrade Rollbook"):
        check_version(WIRE_VERSION + 1, "it")


def damaged(trace: Trace, section: str, data: bytes) -> None:
    """Read `trace` with the bytes of one section replaced."""
    part: dict[str, bytes] = encode_part(trace)
    ends = {"head": encode_head(trace), "tail": encode_tail(trace)}
    decode_trace(
        **({**ends, section: data} if section in ends else ends),
        parts=[{**part, section: data} if section not in ends else part],
    )


SECTIONS = ("head", "text", "tokens", "calls", "tail")


def whole(trace: Trace) -> dict[str, bytes]:
    return {"head": encode_head(trace), **encode_part(trace), "tail": encode_tail(trace)}


@settings(max_examples=200)
@given(st.sampled_from(SECTIONS), st.binary(max_size=60))
def test_random_bytes_are_refused(section: str, data: bytes) -> None:
    with pytest.raises(RecordError):
        damaged(ended(small()), section, data)


@pytest.mark.parametrize("section", SECTIONS)
def test_a_truncated_section_is_refused(section: str) -> None:
    trace = ended(small())
    data = whole(trace)[section]
    for size in range(len(data)):
        with pytest.raises(RecordError):
            damaged(trace, section, data[:size])


@settings(max_examples=300)
@given(st.sampled_from(SECTIONS), st.data())
def test_a_changed_byte_raises_nothing_but_a_record_error(section: str, data: st.DataObject) -> None:
    trace = ended(small())
    stored = bytearray(whole(trace)[section])
    stored[data.draw(st.integers(0, len(stored) - 1))] = data.draw(st.integers(0, 255))
    with suppress(RecordError):
        damaged(trace, section, bytes(stored))


@pytest.mark.parametrize("section", SECTIONS)
def test_what_a_newer_version_added_is_refused_by_name(section: str) -> None:
    with pytest.raises(RecordError, match="unknown field `added`"):
        replaced(ended(small()), section, added=1)


@pytest.mark.parametrize("section", ["text", "tokens", "calls"])
def test_a_part_without_one_of_its_sections_is_refused(section: str) -> None:
    trace = ended(small())
    part = {name: data for name, data in encode_part(trace).items() if name != section}
    with pytest.raises(RecordError, match=f"lacks its sections .*{section}"):
        decode_trace(encode_head(trace), [part], encode_tail(trace))


HOSTILE: Mapping[str, bytes] = {
    "a list of four thousand million": b"\xdd\xff\xff\xff\xff",
    "a map of four thousand million": b"\xdf\xff\xff\xff\xff",
    "a text of four thousand million bytes": b"\xdb\xff\xff\xff\xff",
    "bytes of four thousand million": b"\x81\xa6tokens\xc6\xff\xff\xff\xff",
    "lists in lists without end": b"\x91" * 100_000,
    "the same behind the mark of odd text": b"\x81\xa4wtf8" + b"\x91" * 100_000,
    "odd text that nests too deep for reading it": b"\x81\xa4wtf8" + b"\x91" * 700 + b"\x90",
    "odd text that is none": b"\x81\xa4wtf8\x81\xa3\xc4\x80x\xc0",
    "a list as key": b"\x81\x91\x80\x01",
}


@pytest.mark.parametrize("section", SECTIONS)
@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_lengths_and_nesting_are_refused_at_once(what: str, section: str) -> None:
    trace = ended(small())
    tracemalloc.start()
    try:
        with pytest.raises(RecordError):
            damaged(trace, section, HOSTILE[what])
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def replaced(trace: Trace, section: str, **fields: Any) -> None:
    """Read `trace` with fields of one section replaced."""
    stored = msgspec.msgpack.decode(whole(trace)[section])
    damaged(trace, section, msgspec.msgpack.encode({**stored, **fields}))


def numbers(*values: int) -> bytes:
    return np.array(values, "<i4").tobytes()


TABLE = (-1, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3, 2, 2, 2, 0, 0, 1)


def table(place: int, value: int) -> bytes:
    changed = list(TABLE)
    changed[place] = value
    return numbers(*changed)


def test_the_table_is_what_it_says() -> None:
    replaced(ended(small()), "tokens", counts=numbers(*TABLE))


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        ({"counts": table(0, 1)}, "does not come before"),
        ({"counts": table(9, 1)}, "does not come before"),
        ({"counts": table(11, -1)}, "does not fit the messages"),
        ({"counts": table(11, 2**31 - 1)}, "does not fit the column"),
        ({"counts": numbers(*TABLE[:-1])}, "damaged"),
        ({"counts": b""}, "does not fit the messages"),
        ({"tokens": numbers(1, 2)}, "does not fit the column 'tokens'"),
        ({"tokens": b"\x00" * 11}, "damaged"),
        ({"tokens": np.array([1, 2, 3], "<i8").tobytes()}, "does not fit the column 'tokens'"),
        ({"logprobs": np.array([-1, -2], "<f8").tobytes()}, "does not fit the column 'logprobs'"),
        ({"runs": numbers(0, 1, 2)}, "damaged"),
        ({"segments": numbers(1, 2)}, "names call 1; there are 1"),
    ],
)
def test_columns_that_lie_are_refused(fields: dict[str, bytes], problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        replaced(ended(small()), "tokens", **fields)


CALL: dict[str, Any] = {"node": 1, "after": 0, "sampling": {}, "finish": "stop"}


@pytest.mark.parametrize(
    ("section", "fields", "problem"),
    [
        ("calls", {"calls": []}, "names call 0; there are 0"),
        ("calls", {"calls": [{**CALL, "node": 0}]}, "not behind 0"),
        ("calls", {"calls": [{**CALL, "after": -1, "node": 0}]}, "gave another node"),
        ("calls", {"calls": [{**CALL, "node": None}]}, "gave another node"),
        ("calls", {"calls": [{**CALL, "node": 2}]}, "not among the 2"),
        ("calls", {"calls": [{**CALL, "node": 2**63}]}, "not among the 2"),
        ("calls", {"calls": [CALL, CALL]}, "whose segments do not name it"),
        ("calls", {"calls": [{**CALL, "after": 2}]}, "comes after node 2"),
        ("calls", {"calls": [{**CALL, "after": -2}]}, "comes after node -2"),
        ("calls", {"calls": [{**CALL, "policy": 1}]}, "names policy 1"),
        ("calls", {"calls": [{**CALL, "policy": -1}]}, "names policy -1"),
        ("calls", {"calls": [{**CALL, "sampling": {"temperature": -1}}]}, "damaged: Sampling: temperature"),
        ("calls", {"calls": [{**CALL, "finish": "done"}]}, "damaged"),
        ("calls", {"edges": [{"label": "x", "source": {"node": 2}, "target": {"node": 0}}]}, "edge 'x' names node 2"),
        ("calls", {"edges": [{"label": "x", "source": {"node": 0}, "target": {"node": -1}}]}, "names node -1"),
        ("calls", {"first_call": -1}, "does not follow"),
        ("text", {"first": 1}, "does not follow"),
        ("text", {"nodes": []}, "does not fit the messages"),
        ("tail", {"turn_rewards": [{"node": 0, "value": 1.0}]}, r"nodes \[0\], which are not turns"),
        ("tail", {"turn_rewards": [{"node": 2, "value": 1.0}]}, r"nodes \[2\], which are not turns"),
        ("tail", {"turn_rewards": [{"node": -1, "value": 1.0}]}, r"nodes \[-1\], which are not turns"),
        ("tail", {"reward": float("nan")}, "a reward is not finite"),
        ("tail", {"reward_parts": {"a": float("inf")}}, "a reward is not finite"),
        ("tail", {"scoring": {"status": "failed"}}, "scoring failed"),
        ("tail", {"ending": None}, "without an ending"),
        ("head", {"policies": []}, "names policy 0; the table has 0"),
        ("head", {"tokens": False}, "holds token ids"),
    ],
)
def test_what_names_nothing_is_refused(section: str, fields: dict[str, Any], problem: str) -> None:
    with pytest.raises(RecordError, match=problem):
        replaced(ended(small()), section, **fields)


def test_a_fork_by_drift_without_its_spellings_is_refused() -> None:
    trace = ended(small())
    text = msgspec.msgpack.decode(encode_part(trace)["text"])
    text["nodes"][1]["fork"] = {"reason": "drift"}
    with pytest.raises(RecordError, match="both spellings"):
        damaged(trace, "text", msgspec.msgpack.encode(text))


def test_an_unknown_field_of_a_call_is_refused() -> None:
    with pytest.raises(RecordError, match="unknown field `added`"):
        replaced(ended(small()), "calls", calls=[{**CALL, "added": 1}])


def test_a_running_trace_that_lies_is_refused() -> None:
    trace = small()
    trace.calls.clear()
    with pytest.raises(RecordError, match="names call 0; there are 0"):
        decode_trace(encode_head(trace), [encode_part(trace)], None)


def test_a_record_beside_traces_survives_whatever_text_it_holds() -> None:
    notes = [
        Annotation(producer="p", name="label", rollout="r", value={"n": 10**30, "s": text}) for text in ("é", "\ud83d")
    ]
    assert decode_record(encode_record(notes), list[Annotation], "annotations") == notes
    with pytest.raises(RecordError, match="section 'annotations' is damaged"):
        decode_record(b"\xc1", list[Annotation], "annotations")


def test_what_is_not_plain_data_is_refused_when_it_is_stored() -> None:
    endless: list[Any] = []
    endless.append(endless)
    for value in (object(), endless):
        with pytest.raises(RecordError, match="cannot be stored as plain data"):
            encode_record(Annotation(producer="p", name="n", rollout="r", value=value))
    for trace in (small(config={"a": object()}), small()):
        trace.update(final_state=FinalState(data=object()))
        with pytest.raises(RecordError, match="cannot be stored as plain data"):
            encode_tail(trace)
    with pytest.raises(RecordError, match="cannot be stored as plain data"):
        encode_head(small(config={"a": object()}))


@pytest.mark.parametrize(
    "row",
    [
        Ending(Reason.GOAL_REACHED, 5),  # pyright: ignore[reportArgumentType]
        Task(id=5, prompt="p"),  # pyright: ignore[reportArgumentType]
        Message(role=Role.USER, content=b"x"),  # pyright: ignore[reportArgumentType]
        Message(role="nobody"),  # pyright: ignore[reportArgumentType]
        Message(role=Role.TOOL, content="\ud835", name=7),  # pyright: ignore[reportArgumentType]
    ],
)
def test_what_would_not_read_back_is_refused_when_it_is_stored(row: msgspec.Struct) -> None:
    for value in (row, [row]):
        with pytest.raises(RecordError, match="cannot be stored as plain data: "):
            encode_record(value)
