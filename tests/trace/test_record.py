"""What stands beside the messages: absent is None, other words are kept, other fields are refused."""

from __future__ import annotations

import msgspec
import pytest

from rollbook.trace.record import Edge, EdgeLabel, NodeRef, PolicyRecord, ScoringStatus, TraceHead, TraceTail
from rollbook.trace.task import Task

HEAD = TraceHead(rollout="r", group="g", task=Task(id="t", prompt="Hi"), policies=(PolicyRecord(name="toy"),))


def test_a_tail_that_says_nothing_claims_nothing() -> None:
    tail = TraceTail()
    assert (tail.ending, tail.reward, tail.times, tail.finished, tail.final_state) == (None,) * 5
    assert tail.scoring.status is ScoringStatus.PENDING


@pytest.mark.parametrize("label", [EdgeLabel.REWRITE_OF, "handoff"])
def test_an_edge_keeps_a_harness_s_own_word(label: str) -> None:
    edge = Edge(label=label, source=NodeRef(1), target=NodeRef(0, "other"))
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(edge), type=Edge) == edge


@pytest.mark.parametrize("value", [HEAD, TraceTail(), HEAD.agent, HEAD.policies[0]])
def test_a_field_that_is_not_known_is_refused(value: msgspec.Struct) -> None:
    plain = msgspec.to_builtins(value)
    assert msgspec.convert(plain, type(value)) == value
    with pytest.raises(msgspec.ValidationError, match="unknown field"):
        msgspec.convert({**plain, "more": 1}, type(value))
