"""The sink and source in memory."""

from __future__ import annotations

import pytest

from rollbook.errors import RecordError
from rollbook.trace import (
    Annotation,
    Ending,
    MemorySink,
    PolicyRecord,
    Reason,
    Sink,
    Task,
    Trace,
    TraceHead,
    TraceSource,
    summarise,
)


def trace(rollout: str) -> Trace:
    policies = (PolicyRecord(name="m"),)
    return Trace(TraceHead(rollout=rollout, group="g", task=Task(id="t", prompt=""), policies=policies))


def test_a_rollout_is_running_until_it_is_sealed() -> None:
    memory = MemorySink()
    sink: Sink = memory
    source: TraceSource = memory
    first, second = trace("a"), trace("b")
    sink.begin(first)
    sink.begin(second)
    sink.turn(first)
    assert list(source.traces()) == []
    second.end(Ending(Reason.FINAL_ANSWER))
    sink.seal(second)
    assert second.sealed
    assert (list(source.traces()), list(memory.running)) == ([second], ["a"])
    assert list(source.summaries()) == [summarise(second)]
    assert source.get("b") is second
    with pytest.raises(KeyError):
        source.get("a")


def test_a_trace_that_cannot_be_sealed_keeps_running() -> None:
    memory, running = MemorySink(), trace("a")
    memory.begin(running)
    with pytest.raises(RecordError):
        memory.seal(running)
    assert list(memory.running) == ["a"]


def test_the_newest_annotation_counts() -> None:
    memory = MemorySink()
    old, new = (Annotation(producer="p", name="n", rollout="r", value=value) for value in (1, 2))
    memory.annotate([old])
    memory.annotate([new])
    assert memory.annotations() == [new]
    assert memory.notes == [old, new]
