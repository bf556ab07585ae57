"""Redaction: text and ids go together, and what is left says so."""

from __future__ import annotations

import numpy as np
import pytest

from rollbook.errors import RecordError
from rollbook.trace import (
    ROOT,
    Call,
    Ending,
    FinalState,
    Finish,
    Fork,
    ForkReason,
    LossReason,
    Mark,
    Message,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    Sampling,
    Task,
    ToolCall,
    Trace,
    TraceHead,
    make_runs,
    redact,
    samples,
)
from rollbook.trace.wire import decode_trace, encode_head, encode_part, encode_tail

SECRET = "hunter2"


def turn(trace: Trace, parent: int, content: str, fork: Fork | None = None) -> int:
    call = trace.add_call(Call(node=len(trace.graph), sampling=Sampling(), finish=Finish.STOP))
    return trace.graph.add(
        Message(
            role=Role.ASSISTANT,
            content=content,
            reasoning=content,
            tool_calls=(ToolCall(id="c", name="f", arguments={"a": content}, raw=content),),
        ),
        parent=parent,
        origin=Origin.POLICY,
        token_ids=np.array([77, 78], np.int32),
        runs=make_runs((2, 2)),
        logprobs=np.array([-1, -2], np.float32),
        versions=make_runs((1, 2)),
        segments=make_runs((call, 2)),
        fork=fork,
    )


def forked() -> Trace:
    """A question, two answers to it (the second drifted from the first), and a turn behind the first."""
    head = TraceHead(rollout="r", group="g", task=Task(id="t", prompt=SECRET), policies=(PolicyRecord(name="m"),))
    trace = Trace(head)
    root = trace.graph.add(Message(role=Role.USER, content="q"), parent=ROOT, origin=Origin.USER)
    first = turn(trace, root, SECRET)
    drift = Fork(reason=ForkReason.DRIFT, detail=SECRET, position=2, kept=SECRET, found="hunter 2")
    turn(trace, root, "other", drift)
    turn(trace, first, "then", Fork(reason=ForkReason.RETRY, detail="kept"))
    trace.update(final_state=FinalState(text=SECRET))
    trace.end(Ending(Reason.FINAL_ANSWER))
    trace.seal()
    return trace


def stored(trace: Trace) -> bytes:
    return b"".join([encode_head(trace), *encode_part(trace).values(), encode_tail(trace)])


def test_nothing_of_a_redacted_node_is_stored() -> None:
    trace = forked()
    left = redact(trace, 1, task=Task(id="t", prompt="removed"), final_state=FinalState(text="removed"))
    assert SECRET.encode() in stored(trace)
    assert SECRET.encode() not in stored(left)
    assert left.graph.tokens.view.tolist() == [77, 78] * 2
    again = decode_trace(encode_head(left), [encode_part(left)], encode_tail(left))
    assert again.graph.marks == {1: Mark.REDACTED}


def test_its_branch_does_not_train_and_the_count_drops() -> None:
    trace = forked()
    assert samples(trace).ledger.captured == 6
    found = samples(redact(trace, 1))
    assert (found.ledger.captured, found.ledger.trained, found.ledger.lost) == (4, 2, {LossReason.REDACTED: 2})
    assert [sample.branch for sample in found] == [0]


def test_only_spellings_beside_the_node_go() -> None:
    left = redact(forked(), 1)
    assert left.graph[2].fork == Fork(reason=ForkReason.DRIFT, position=2, kept="", found="")
    assert left.graph[3].fork == Fork(reason=ForkReason.RETRY, detail="kept")
    assert redact(forked(), 3).graph[3].fork == Fork(reason=ForkReason.RETRY)


def test_a_mark_of_before_gives_way() -> None:
    trace = forked()
    running = Trace(trace.head, calls=trace.calls)
    running.graph.load(trace.graph.texts()[:2], *_columns(trace, 2))
    running.graph.mark(1, Mark.DEMOTED)
    left = redact(running, 1, 0)
    assert left.graph.marks == {0: Mark.REDACTED, 1: Mark.REDACTED}
    assert not left.sealed


def _columns(trace: Trace, nodes: int) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    names = ("tokens", "runs", "logprobs", "rescored", "versions", "segments")
    counts = trace.graph.counts()[:nodes]
    totals = dict(zip(names, np.delete(counts[:, 2:], 2, axis=1).sum(axis=0), strict=True))
    columns = {"tokens": trace.graph.tokens, "runs": trace.graph.runs, "logprobs": trace.graph.logprobs}
    columns |= {"rescored": trace.graph.rescored, "versions": trace.graph.versions, "segments": trace.graph.segments}
    return counts, {name: columns[name].view[: totals[name]] for name in names}


def test_the_original_stays_and_the_rest_is_shared_by_nobody() -> None:
    trace = forked()
    before = stored(trace)
    left = redact(trace, 0, 1)
    assert stored(trace) == before
    assert left.calls == trace.calls
    assert left.calls is not trace.calls
    assert redact(trace).graph.messages == trace.graph.messages


@pytest.mark.parametrize("node", [-1, 4])
def test_a_node_that_is_not_there(node: int) -> None:
    with pytest.raises(RecordError, match="to redact"):
        redact(forked(), node)
