"""The trace: what it takes while it grows, and what must hold when it is closed."""

from __future__ import annotations

import numpy as np
import pytest

from rollbook.errors import RecordError
from rollbook.trace import (
    ROOT,
    Call,
    Edge,
    EdgeLabel,
    Ending,
    ErrorNote,
    Finish,
    Message,
    NodeRef,
    Origin,
    PolicyRecord,
    Reason,
    Role,
    Sampling,
    Scoring,
    ScoringStatus,
    Task,
    ToolCall,
    Trace,
    TraceHead,
    TraceTail,
    TurnReward,
    make_runs,
)

DONE = Ending(Reason.FINAL_ANSWER)


def open_trace() -> Trace:
    """A question and a turn of two sampled tokens, given by call 0."""
    trace = Trace(TraceHead(rollout="r", group="g", task=Task(id="t", prompt="p"), policies=(PolicyRecord(name="m"),)))
    trace.graph.add(Message(role=Role.USER, content="q"), parent=ROOT, origin=Origin.USER)
    answer(trace, 0, call=trace.add_call(call(node=1)))
    return trace


def call(node: int | None, *, after: int = ROOT, policy: int = 0) -> Call:
    return Call(node=node, after=after, policy=policy, sampling=Sampling(), finish=Finish.STOP)


def answer(trace: Trace, parent: int, *, call: int | None) -> int:
    return trace.graph.add(
        Message(role=Role.ASSISTANT, content="a"),
        parent=parent,
        origin=Origin.POLICY,
        token_ids=np.array([1, 2], np.int32),
        runs=make_runs((2, 2)),
        segments=make_runs() if call is None else make_runs((call, 2)),
    )


def test_what_a_trace_says_of_itself() -> None:
    trace = open_trace()
    assert (trace.id, trace.task.id, trace.ending, trace.reward) == ("r", "t", None, None)
    trace.graph.add(Message(role=Role.USER, content="x"), parent=1, origin=Origin.HARNESS)
    assert trace.policy_nodes.tolist() == [1]
    assert [turn.index for turn in trace.turns()] == [1]
    assert trace.text == "a", "what the harness said is no answer"
    empty = Trace(trace.head)
    assert (empty.answer, empty.text) == (None, "")


def test_the_last_tool_is_that_of_the_last_call_with_a_name() -> None:
    trace = Trace(TraceHead(rollout="r", group="g", task=Task(id="t", prompt="p"), policies=(PolicyRecord(name="m"),)))
    assert trace.last_tool is None
    calls = (ToolCall(id="a", name="first"), ToolCall(id="b", name="second"), ToolCall(id="c", name=None))
    trace.graph.add(Message(role=Role.ASSISTANT, tool_calls=calls), parent=ROOT, origin=Origin.POLICY)
    trace.graph.add(Message(role=Role.ASSISTANT, content="no call"), parent=0, origin=Origin.POLICY)
    foreign = Message(role=Role.ASSISTANT, tool_calls=(ToolCall(id="d", name="other"),))
    trace.graph.add(foreign, parent=1, origin=Origin.HARNESS)
    assert trace.last_tool == "second", "what the harness called is no call of the policy's"


def test_the_first_ending_wins_and_later_ones_are_noted() -> None:
    trace = open_trace()
    assert trace.end(DONE)
    assert not trace.end(Ending(Reason.HARNESS, "exit code 1"))
    assert trace.ending == DONE
    assert trace.tail.errors == (ErrorNote("after submitted/final_answer", "error/harness: exit code 1"),)
    with pytest.raises(RecordError, match="the first cause wins"):
        trace.update(ending=Ending(Reason.HARNESS))
    trace.score_failed("scorer raised")
    assert (trace.ending, trace.reward) == (DONE, None)
    assert trace.tail.scoring == Scoring(ScoringStatus.FAILED, "scorer raised")


def test_rewards() -> None:
    trace = open_trace()
    trace.score(0.5, {"a": 1.0}, (TurnReward(1, 0.25),))
    assert (trace.reward, trace.tail.reward_parts, trace.tail.turn_rewards) == (0.5, {"a": 1.0}, (TurnReward(1, 0.25),))
    assert trace.tail.scoring.status is ScoringStatus.SCORED
    trace.score(None)
    assert (trace.reward, trace.tail.reward_parts) == (None, {})


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
def test_a_reward_is_finite(bad: float) -> None:
    trace = open_trace()
    for refused in (
        lambda: trace.score(bad),
        lambda: trace.score(1.0, {"a": bad}),
        lambda: trace.score(1.0, turn_rewards=(TurnReward(1, bad),)),
        lambda: trace.update(reward=bad),
    ):
        with pytest.raises(RecordError, match="not finite"):
            refused()
    assert trace.tail == TraceTail()


@pytest.mark.parametrize("node", [-1, 0, 2])
def test_a_turn_reward_belongs_to_a_turn(node: int) -> None:
    with pytest.raises(RecordError, match="not turns of this trace"):
        open_trace().score(1.0, turn_rewards=(TurnReward(node, 1.0),))


def test_there_is_no_reward_where_scoring_failed() -> None:
    trace = open_trace()
    trace.score(1.0)
    with pytest.raises(RecordError, match="scoring failed"):
        trace.update(scoring=Scoring(ScoringStatus.FAILED))


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        (call(None, policy=1), "names policy 1; the table has 1"),
        (call(None, policy=-1), "names policy -1"),
        (call(None, after=2), "comes after node 2; there are 2"),
        (call(None, after=-2), "comes after node -2"),
        (call(3), "gave node 3"),
        (call(-1), "gave node -1"),
        (call(1, after=1), "not behind 1"),
    ],
)
def test_a_call_names_what_is_there(given: Call, problem: str) -> None:
    trace = open_trace()
    with pytest.raises(RecordError, match=problem):
        trace.add_call(given)
    assert len(trace.calls) == 1
    assert trace.add_call(call(None, after=1)) == 1


def test_an_edge_names_what_is_there() -> None:
    trace = open_trace()
    here, away = NodeRef(1), NodeRef(99, "other")
    for stray in (NodeRef(2), NodeRef(-1), NodeRef(2, "r")):
        for edge in (Edge(label="x", source=stray, target=away), Edge(label="x", source=here, target=stray)):
            with pytest.raises(RecordError, match="edge 'x' names node"):
                trace.add_edge(edge)
    trace.add_edge(Edge(label="a word of its own", source=here, target=away))
    assert [edge.label for edge in trace.edges] == ["a word of its own"]


def test_what_rewrites_another_node_is_not_sampled() -> None:
    trace = open_trace()
    trace.graph.add(Message(role=Role.ASSISTANT), parent=1, origin=Origin.HARNESS)
    with pytest.raises(RecordError, match="node 1 rewrites another one and holds sampled tokens"):
        trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(1), target=NodeRef(0)))
    trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(2), target=NodeRef(1)))
    trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(0), target=NodeRef(1)))
    trace.add_edge(Edge(label=EdgeLabel.REWRITE_OF, source=NodeRef(1, "other"), target=NodeRef(1)))


def test_a_trace_without_an_ending_stays_open() -> None:
    trace = open_trace()
    with pytest.raises(RecordError, match="without an ending"):
        trace.seal()
    trace.end(DONE)
    trace.seal()
    trace.seal()
    assert trace.sealed
    with pytest.raises(RecordError, match="trace r is sealed; write an annotation instead"):
        trace.score(1.0)


@pytest.mark.parametrize(
    ("gave", "named", "problem"),
    [
        (2, 5, "names call 5; there are 2"),
        (2, 0, "gave another node"),
        (None, 1, "gave another node"),
        (3, None, "gave node 3"),
    ],
)
def test_calls_and_segments_name_each_other(gave: int | None, named: int | None, problem: str) -> None:
    trace = open_trace()
    trace.calls.append(call(gave, after=1))
    answer(trace, 1, call=named)
    trace.end(DONE)
    with pytest.raises(RecordError, match=problem):
        trace.seal()
    assert not trace.sealed
    assert not trace.graph.sealed


def test_a_call_that_gave_a_node_stands_in_its_segments() -> None:
    trace = open_trace()
    trace.add_call(call(1))
    with pytest.raises(RecordError, match="whose segments do not name it"):
        trace.check()


def test_nodes_of_an_import_need_no_segments_and_a_turn_may_take_several_calls() -> None:
    trace = open_trace()
    answer(trace, 1, call=None)
    trace.add_call(call(2))
    trace.check()
    first, second = trace.add_call(call(3)), trace.add_call(call(3))
    trace.graph.add(
        Message(role=Role.ASSISTANT),
        parent=2,
        origin=Origin.POLICY,
        token_ids=np.array([1, 2], np.int32),
        runs=make_runs((2, 2)),
        segments=make_runs((first, 1), (second, 1)),
    )
    trace.check()


def test_a_text_only_trace_holds_no_token_ids() -> None:
    trace = open_trace()
    text_only = Trace(TraceHead(rollout="r", group="g", task=trace.task, policies=trace.head.policies, tokens=False))
    text_only.graph.add(Message(role=Role.ASSISTANT, content="a"), parent=ROOT, origin=Origin.POLICY)
    text_only.check()
    answer(text_only, 0, call=None)
    with pytest.raises(RecordError, match="holds token ids"):
        text_only.check()
