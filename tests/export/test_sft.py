"""Conversations for fine-tuning: which rollouts, in which form, and that TRL reads them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.export import SftReport, export_sft
from rollbook.trace import (
    ROOT,
    Agent,
    Annotation,
    Disposition,
    Ending,
    Fate,
    Mark,
    MemorySink,
    Message,
    Origin,
    ParseStatus,
    PolicyRecord,
    Reason,
    Role,
    Task,
    ToolCall,
    ToolSpec,
    Trace,
    TraceHead,
    facts,
)
from rollbook.trace.facts import REWARD
from tests.export.build import batch, names, sound

ADD = ToolSpec(name="add", description="Adds.", parameters={"type": "object", "properties": {"x": {"type": "number"}}})


def chat(
    rollout: str,
    reward: float | None = 1.0,
    *,
    answer: str = "3",
    group: str = "g0",
    member: int = 0,
    task: str = "t0",
    seat: str = "solver",
    trainable: bool = True,
    call: ToolCall | None = None,
    tools: tuple[ToolSpec, ...] = (ADD,),
    reason: Reason = Reason.FINAL_ANSWER,
    example: bool = False,
) -> Trace:
    """A text-only rollout with a tool call."""
    head = TraceHead(
        rollout=rollout,
        group=group,
        member=member,
        task=Task(id=task, prompt="?"),
        agent=Agent(seat=seat, trainable=trainable),
        policies=(PolicyRecord(name="p"),),
        tools=tools,
        tokens=False,
    )
    trace = Trace(head)
    called = call or ToolCall(id="c", name="add", arguments={"x": 1})
    if example:
        trace.graph.add(Message(role=Role.ASSISTANT, content="So."), parent=ROOT, origin=Origin.HARNESS)
    for message, origin in (
        (Message(role=Role.SYSTEM, content="Be good."), Origin.HARNESS),
        (Message(role=Role.USER, content="1 + 2?"), Origin.USER),
        (Message(role=Role.ASSISTANT, reasoning="hm", tool_calls=(called,)), Origin.POLICY),
        (Message(role=Role.TOOL, content="3", call_id="c", name="add"), Origin.ENVIRONMENT),
        (Message(role=Role.ASSISTANT, content=answer), Origin.POLICY),
        (Message(role=Role.USER, content="bye"), Origin.USER),
    ):
        trace.graph.add(message, parent=len(trace.graph) - 1, origin=origin)
    trace.end(Ending(reason))
    if reward is not None:
        trace.score(reward)
    return trace


def sft(traces: Sequence[Trace], folder: Path, **options: Any) -> tuple[SftReport, list[dict[str, Any]]]:
    options = {"threshold": 0.5, **options}
    report = export_sft(batch(traces), folder / "out", overwrite=True, **options)
    return report, [json.loads(line) for line in (folder / "out").read_text().splitlines()]


def test_a_line_is_the_conversation_up_to_the_last_turn(tmp_path: Path) -> None:
    report, (row,) = sft([chat("a")], tmp_path)
    function = {"name": "add", "arguments": {"x": 1}}
    assert row["messages"] == [
        {"role": "system", "content": "Be good."},
        {"role": "user", "content": "1 + 2?"},
        {
            "role": "assistant",
            "content": "",
            "reasoning_content": "hm",
            "tool_calls": [{"id": "c", "type": "function", "function": function}],
        },
        {"role": "tool", "content": "3", "tool_call_id": "c", "name": "add"},
        {"role": "assistant", "content": "3"},
    ]
    assert json.loads(row["tools"]) == [ADD.openai()]
    assert (row["rollout"], row["task"], row["reward"]) == ("a", "t0", 1.0)
    assert (report.conversations, report.turns, report.foreign, report.tasks) == (1, 2, 0, 1)
    assert names(tmp_path) == ["out", "out.report.json"]
    assert json.loads((tmp_path / "out.report.json").read_text()) == report.to_dict()


def test_split_cuts_before_the_first_turn(tmp_path: Path) -> None:
    _, (row,) = sft([chat("a", tools=())], tmp_path, split=True)
    assert ([m["role"] for m in row["prompt"]], len(row["completion"])) == (["system", "user"], 3)
    assert not {"messages", "tools"} & row.keys()


def test_each_rule_is_counted(tmp_path: Path) -> None:
    bad = ToolCall(id="c", raw="{", status=ParseStatus.INVALID_JSON)
    silent = chat("silent", answer="")
    traces = [
        chat("kept"),
        chat("same"),
        chat("low", 0.4, answer="4"),
        chat("unscored", None),
        chat("lost", reason=Reason.HARNESS),
        chat("judge", trainable=False),
        chat("faulty", call=bad),
        silent,
    ]
    report, rows = sft(traces, tmp_path)
    assert [row["rollout"] for row in rows] == ["kept"]
    assert report.left_out == {
        "below_threshold": 1,
        "dropped": 2,
        "faulty_call": 1,
        "no_text": 1,
        "same_content": 1,
        "untrainable_seat": 1,
    }
    assert report.conversations + sum(report.left_out.values()) == report.rollouts == len(traces)


def test_the_disposition_that_was_given_counts(tmp_path: Path) -> None:
    report, rows = sft([chat("a"), chat("b", answer="x")], tmp_path, dispositions={"a": Disposition(Fate.MASKED, "me")})
    assert ([row["rollout"] for row in rows], report.left_out) == (["b"], {"masked": 1})


def test_a_later_reward_takes_the_place_of_the_trace_s_own(tmp_path: Path) -> None:
    source = batch([chat("a", 1.0), chat("b", 0.0, answer="4"), chat("c", 1.0, answer="5")])
    later = {"a": facts.Reward(total=0.0), "b": facts.Reward(total=1.0), "c": facts.Reward(total=None)}
    source.annotate(
        Annotation(producer="score", name=facts.REWARD, rollout=rollout, step=1, value=msgspec.to_builtins(reward))
        for rollout, reward in later.items()
    )
    report = export_sft(source, tmp_path / "out", threshold=0.5)
    (row,) = [json.loads(line) for line in (tmp_path / "out").read_text().splitlines()]
    assert (row["rollout"], row["reward"]) == ("b", 1.0)
    assert report.left_out == {"below_threshold": 1, "dropped": 1}, "no reward any more is no vote"


@pytest.mark.parametrize("mark", [Mark.REJECTED, Mark.DEMOTED])
def test_turns_that_were_taken_out_are_not_imitated(mark: Mark, tmp_path: Path) -> None:
    taken = chat("a")
    taken.graph.mark(2, mark)
    report, _ = sft([taken, chat("b")], tmp_path)
    assert report.left_out == {str(mark): 1}


def test_calls_inside_of_reasoning_are_no_calls(tmp_path: Path) -> None:
    call = ToolCall(id="c", raw="x", status=ParseStatus.INSIDE_REASONING)
    _, (row,) = sft([chat("a", call=call)], tmp_path)
    assert "tool_calls" not in row["messages"][2]


def test_replies_of_others_are_counted(tmp_path: Path) -> None:
    trace = chat("a")
    other = Trace(trace.head)
    other.graph.add(Message(role=Role.ASSISTANT, content="an example"), parent=ROOT, origin=Origin.HARNESS)
    other.graph.add(Message(role=Role.ASSISTANT, content="mine"), parent=0, origin=Origin.POLICY)
    other.end(Ending(Reason.FINAL_ANSWER))
    other.score(1.0)
    report, _ = sft([other], tmp_path)
    assert (report.turns, report.foreign) == (1, 1)


def test_the_branch_that_it_ended_on_is_imitated(tmp_path: Path) -> None:
    trace = sound("tokens")
    report, _ = sft([chat("a")], tmp_path)
    assert report.conversations == 1
    with pytest.raises(UsageError, match="left to imitate: 1 no_text"):
        sft([trace], tmp_path)


def test_best_takes_one_of_each_group_and_seat(tmp_path: Path) -> None:
    traces = [
        chat("a", 0.5, answer="a"),
        chat("b", 0.9, answer="b", member=2),
        chat("c", 0.9, answer="c", member=1),
        chat("d", 0.1, answer="d", group="g1"),
        chat("e", 0.2, answer="e", seat="other"),
    ]
    report, rows = sft(traces, tmp_path, select="best", threshold=None)
    assert [row["rollout"] for row in rows] == ["c", "d", "e"]
    assert report.left_out == {"not_best": 2}
    assert [row["rollout"] for row in sft(traces, tmp_path, select="best", threshold=0.2)[1]] == ["c", "e"]


def test_one_of_each_task_is_the_best(tmp_path: Path) -> None:
    traces = [chat("a", 0.6, answer="a"), chat("b", 0.9, answer="b", group="g1"), chat("c", task="t1")]
    report, rows = sft(traces, tmp_path, dedupe="task")
    assert ([row["rollout"] for row in rows], report.left_out) == (["b", "c"], {"same_task": 1})
    assert len(sft([chat("a"), chat("b")], tmp_path, dedupe="none")[1]) == 2


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"select": "worst"}, "select: no 'worst'; there is rejection, best"),
        ({"dedupe": "all"}, "dedupe: no 'all'"),
        ({"threshold": None}, "needs the lowest reward"),
        ({"threshold": float("nan")}, "finite"),
        ({"threshold": 2.0}, "left to imitate: 1 below_threshold"),
    ],
)
def test_what_cannot_be_done_leaves_nothing(options: dict[str, Any], says: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=says):
        sft([chat("a")], tmp_path, **options)
    assert names(tmp_path) == []


def test_a_file_that_is_there_stays(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine")
    with pytest.raises(UsageError, match="exists"):
        export_sft(batch([chat("a")]), tmp_path / "out", threshold=0.0)
    with pytest.raises(UsageError, match="there are no traces"):
        export_sft(MemorySink(), tmp_path / "new", threshold=0.0)


REWARDS = st.sampled_from([0.0, 0.5, 1.0])
MEMBERS = st.lists(st.tuples(st.sampled_from("gh"), st.sampled_from("ab"), REWARDS), min_size=1, max_size=8)


@given(
    members=MEMBERS,
    select=st.sampled_from(["rejection", "best"]),
    dedupe=st.sampled_from(["none", "content", "task"]),
)
@settings(max_examples=60, deadline=None)
def test_nothing_is_lost_without_a_reason(
    members: list[tuple[str, str, float]], select: str, dedupe: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    traces = [
        chat(f"r{at}", reward, answer=answer, group=group, task=group, member=at)
        for at, (group, answer, reward) in enumerate(members)
    ]
    folder = tmp_path_factory.mktemp("sft")
    if max(reward for _, _, reward in members) < 0.5:
        return
    report, rows = sft(traces, folder, select=select, dedupe=dedupe)
    assert report.conversations == len(rows) == report.rollouts - sum(report.left_out.values())
    assert all(row["reward"] >= 0.5 for row in rows)
    assert [row["rollout"] for row in rows] == sorted(row["rollout"] for row in rows)
    if dedupe == "task":
        best = {group: max(reward for g, _, reward in members if g == group) for group, _, _ in members}
        assert all(row["reward"] == best[row["task"]] for row in rows)
        assert len({row["task"] for row in rows}) == len(rows)


def test_the_reward_that_was_given_later_counts(tmp_path: Path) -> None:
    sink = MemorySink()
    for trace in (chat("good", 1.0), chat("bad", 0.0, answer="4", member=1)):
        sink.seal(trace)
    sink.annotate(
        Annotation(producer="p", name=REWARD, rollout=rollout, step=1, value={"total": total})
        for rollout, total in (("good", 0.0), ("bad", 1.0))
    )
    export_sft(sink, tmp_path / "out", threshold=0.5)
    rows = [json.loads(line) for line in (tmp_path / "out").read_text("utf-8").splitlines()]
    assert [(row["rollout"], row["reward"]) for row in rows] == [("bad", 1.0)]
