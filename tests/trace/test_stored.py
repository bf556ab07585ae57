"""Samples of several stored traces at once are those of each decoded trace, and nothing else is taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.trace import (
    ROOT,
    Call,
    Edge,
    EdgeLabel,
    Ending,
    Finish,
    Fork,
    ForkReason,
    LogprobKind,
    Mark,
    Message,
    NodeRef,
    Origin,
    Reason,
    Role,
    Sample,
    Sampling,
    Trace,
    TurnReward,
    compress_runs,
    make_runs,
    samples,
)
from rollbook.trace.sample_block import stored_samples
from rollbook.trace.stored import open_stored
from rollbook.trace.wire import decode_trace, encode_head, encode_part, encode_tail
from tests.strategies import traces
from tests.trace.test_sample import head, prompt, turn


class Stored:
    """A trace as the store gives it."""

    def __init__(self, trace: Trace) -> None:
        self.rollout, self.marks = trace.id, len(trace.graph.marks)
        self.sections = {"head": encode_head(trace), **encode_part(trace), "tail": encode_tail(trace)}

    def section(self, name: str) -> bytes:
        return self.sections[name]

    def trace(self) -> Trace | None:
        return decode_trace(self.sections["head"], [self.sections], self.sections["tail"])


TRAINABLE = head().policies[:1]


@st.composite
def common(draw: st.DrawFn) -> Trace:
    """Traces of one path whose turns all have logprobs and calls, of any runs, versions and transforms."""
    trace = Trace(head(policies=TRAINABLE, run=draw(st.sampled_from(["", "run"]))))
    random = np.random.default_rng(draw(st.integers(0, 2**32)))
    for place in range(draw(st.integers(1, 5))):
        if draw(st.booleans()) or not place:
            count = draw(st.integers(0, 4))
            trace.graph.add(
                Message(role=Role.USER, content="seen"),
                parent=len(trace.graph) - 1,
                origin=Origin.USER,
                token_ids=random.integers(0, 9, count, dtype=np.int32),
                runs=make_runs((1, count)),
            )
        kinds = [0, *draw(st.lists(st.sampled_from([0, 2, 3]), max_size=4)), 2]
        sampled = kinds.count(2)
        node, calls = len(trace.graph), draw(st.integers(1, min(2, sampled)))
        if draw(st.booleans()):
            trace.add_call(Call(after=node - 1, sampling=Sampling(), finish=Finish.ERROR))
        made = [_call(draw, trace, node) for _ in range(calls)]
        versions = [draw(st.integers(0, 3)) for _ in range(sampled)]
        trace.graph.add(
            Message(role=Role.ASSISTANT),
            parent=node - 1,
            origin=Origin.POLICY,
            token_ids=random.integers(0, 9, len(kinds), dtype=np.int32),
            runs=compress_runs(kinds),
            logprobs=-random.random(sampled, dtype=np.float32),
            rescored=np.array([0] if draw(st.booleans()) else [], np.int32),
            versions=compress_runs(versions) if draw(st.booleans()) else make_runs(),
            segments=make_runs(*((call, 1) for call in made[:-1]), (made[-1], sampled - calls + 1)),
        )
    if draw(st.booleans()):
        trace.graph.add(Message(role=Role.ASSISTANT), parent=len(trace.graph) - 1, origin=Origin.POLICY)
    trace.score(draw(st.none() | st.floats(-2, 2)), {"part": 0.5})
    trace.end(Ending(draw(st.sampled_from(Reason))))
    trace.seal()
    return trace


def _call(draw: st.DrawFn, trace: Trace, node: int) -> int:
    sampling = Sampling(temperature=draw(st.sampled_from([1.0, 0.5])), seed=draw(st.none() | st.integers(0, 3)))
    kind = draw(st.none() | st.sampled_from(LogprobKind))
    return trace.add_call(Call(node=node, after=node - 1, sampling=sampling, logprob_kind=kind, finish=Finish.STOP))


def assert_same(left: Sample, right: Sample) -> None:
    for field in fields(Sample):
        one, other = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray):
            assert (one.dtype, one.tobytes()) == (other.dtype, other.tobytes()), field.name
        else:
            assert one == other, field.name


@given(st.lists(common(), min_size=1, max_size=4))
def test_a_block_holds_the_samples_of_its_traces(several: list[Trace]) -> None:
    opened = [open_stored(Stored(trace)) for trace in several]
    advantages = [0.5 * place for place in range(len(several))]
    block = stored_samples([each for each in opened if each is not None], advantages)
    assert block is not None
    assert len(block) == len(several)
    for place, (trace, advantage) in enumerate(zip(several, advantages, strict=True)):
        (want,) = samples(trace, advantage=advantage)
        assert_same(block.samples()[place], want)
        part = slice(*block.offsets[place : place + 2].tolist())
        for name, array in block.arrays.items():
            assert array[part].tobytes() == getattr(want, name).tobytes()


@given(traces())
@settings(max_examples=100)
def test_whatever_is_taken_is_right(trace: Trace) -> None:
    opened = open_stored(Stored(trace))
    block = None if opened is None else stored_samples([opened], [None])
    if block is not None:
        found = samples(trace)
        assert found.ledger.trained == found.ledger.captured
        (want,) = found
        assert_same(block.samples()[0], want)


def test_a_sampling_that_cannot_be_is_left_to_the_general_way() -> None:
    for field, value in (("temperature", -1.0), ("top_p", 2.0), ("max_tokens", 0)):
        stored = Stored(single())
        plain: dict[str, Any] = msgspec.msgpack.decode(stored.sections["calls"])
        plain["calls"][-1]["sampling"][field] = value
        stored.sections["calls"] = msgspec.msgpack.encode(plain)
        opened = open_stored(stored)
        assert opened is None or stored_samples([opened], [None]) is None


@pytest.mark.parametrize(
    ("field", "value"), [("node", 99), ("node", 0), ("after", -2), ("after", 99), ("policy", 1), ("policy", -1)]
)
def test_a_call_that_names_what_is_not_there_is_left_to_the_general_way(field: str, value: int) -> None:
    for place in (0, -1):
        stored = Stored(single())
        plain: dict[str, Any] = msgspec.msgpack.decode(stored.sections["calls"])
        plain["calls"][place][field] = value
        stored.sections["calls"] = msgspec.msgpack.encode(plain)
        opened = open_stored(stored)
        assert opened is None or stored_samples([opened], [None]) is None


def single() -> Trace:
    trace = Trace(head(policies=TRAINABLE))
    turn(trace, turn(trace, prompt(trace)))
    trace.end(Ending(Reason.FINAL_ANSWER))
    return trace


def marked(trace: Trace) -> None:
    trace.graph.mark(1, Mark.DEMOTED)


def linked(trace: Trace) -> None:
    trace.add_edge(Edge(label=EdgeLabel.COMPACTION_ATTEMPT, source=NodeRef(1), target=NodeRef(0)))


def rewarded(trace: Trace) -> None:
    trace.score(1.0, turn_rewards=(TurnReward(1, 0.5),))


def untouched(trace: Trace) -> None:
    pass


@pytest.mark.parametrize(("change", "taken"), [(untouched, True), (marked, False), (linked, False), (rewarded, False)])
def test_only_the_common_case_is_taken(change: Callable[[Trace], None], taken: bool) -> None:
    trace = single()
    change(trace)
    assert (open_stored(Stored(trace)) is not None) is taken


@pytest.mark.parametrize("column", ["tokens", "runs", "logprobs", "versions", "segments", "counts"])
@pytest.mark.parametrize("value", [-5, 9])
def test_what_breaks_a_rule_is_left_to_the_general_way(column: str, value: int) -> None:
    stored = Stored(single())
    plain: dict[str, Any] = msgspec.msgpack.decode(stored.sections["tokens"])
    array = np.frombuffer(plain[column], np.float32 if column == "logprobs" else np.int32).copy()
    if not len(array) or (column, value) == ("tokens", 9):
        return
    array[0] = abs(value) if column == "logprobs" else value
    stored.sections["tokens"] = msgspec.msgpack.encode({**plain, column: array.tobytes()})
    opened = open_stored(stored)
    assert opened is None or stored_samples([opened], [None]) is None


def test_a_fork_and_a_bare_turn_are_left_to_the_general_way() -> None:
    bare = Trace(head(policies=TRAINABLE))
    forked = Trace(head(policies=TRAINABLE))
    shared = turn(forked, prompt(forked))
    turn(forked, shared)
    turn(forked, ROOT, fork=NEW_ROOT)
    turn(bare, turn(bare, prompt(bare)), logprobs=False)
    for trace in (forked, bare):
        trace.end(Ending(Reason.FINAL_ANSWER))
        opened = open_stored(Stored(trace))
        assert opened is None or stored_samples([opened], [None]) is None


NEW_ROOT = Fork(reason=ForkReason.NEW_ROOT)
