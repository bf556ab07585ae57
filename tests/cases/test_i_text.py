"""Any text is kept, and a failing store changes nothing of what it was given."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from rollbook.audit import audit
from rollbook.envs import Environment, Rewards, tool
from rollbook.errors import StoreError, UsageError
from rollbook.export import export
from rollbook.rollout import group
from rollbook.store import RunReader, RunWriter, read_manifest
from rollbook.trace import (
    Annotation,
    Ending,
    Fault,
    FinalState,
    MemorySink,
    Message,
    Reason,
    Role,
    Task,
    Trace,
    summarise,
)
from tests.cases.case import (
    Script,
    Talk,
    add_turn,
    add_user,
    attempt,
    bits,
    byte_ids,
    calls,
    reply,
    report,
    run_one,
    says,
)

# I04

ODD = [
    *(chr(point) for point in range(0xD800, 0xE000, 89)),
    "\udfff",
    "\ude00\ud83d",
    "\ud83d\ude00",
    "\0",
    "a\u2028b\u2029c\x85",
    "\r\n\n",
    "\ufeff\ufffe",
]


class Echo(Environment):
    """Gives back what its task says, through a tool, as observation and in the final state."""

    text: str = ""

    async def setup(self, task: Task) -> list[Message]:
        self.text = task.target
        return [Message(role=Role.USER, content=f"say {self.text}")]

    @tool(limit=None)
    async def read(self) -> str:
        """Reads the text."""
        return self.text

    async def score(self, trace: Trace) -> Rewards:
        return Rewards(1.0, parts={self.text: 1.0}, metrics={self.text: 2.0})


def in_json(value: Any) -> Any:
    """As files of JSON give it back: there the two halves of a pair, side by side, are one character."""
    return json.loads(json.dumps(value))


def through_everything(texts: list[str], folder: Path) -> None:
    """One group of rollouts, each with one of the texts, through rollout, store and export."""
    run = folder / "run"
    with RunWriter.create(run, {"texts": texts}) as writer:

        async def all_at_once() -> list[list[Trace]]:
            async with asyncio.TaskGroup() as tasks:
                made = [
                    tasks.create_task(
                        group(
                            Echo,
                            Task(id=text, prompt="go", target=text, data={text: text}),
                            Script([calls("read", "{}"), says("done")]).loaded(),
                            1,
                            sink=writer,
                        )
                    )
                    for text in texts
                ]
            return [each.result() for each in made]

        traces = [trace for traces in asyncio.run(all_at_once()) for trace in traces]
        writer.annotate([Annotation(producer=text[:20], name=text, rollout="r", value={text: text}) for text in texts])
    reader = RunReader(run, strict=True)
    assert read_manifest(run).config == {"texts": in_json(texts)}
    stored = {trace.id: trace for trace in reader.traces()}
    for trace, text in zip(traces, texts, strict=True):
        again = stored[trace.id]
        assert trace.ending == Ending(Reason.FINAL_ANSWER)
        assert bits(again) == bits(trace)
        assert [message.content for message in again.graph.messages] == [f"say {text}", "", text, "done"]
        assert again.tail.reward_parts == {text: 1.0}
        assert summarise(again) in list(reader.summaries())
    assert {row.name for row in reader.annotations() if row.name in texts} == set(texts)
    export(reader, "jsonl", folder / "out.jsonl")
    lines = (folder / "out.jsonl").read_bytes().split(b"\n")
    rows = [json.loads(line) for line in lines[:-1]]
    assert [row["reward_parts"] for row in rows] == [in_json(stored[row["rollout"]].tail.reward_parts) for row in rows]
    assert len(rows) == len(texts)


@report("I04")
def test_a_lone_surrogate_is_kept_and_hurts_nobody(given: dict[str, Any], tmp_path: Path) -> None:
    text = json.loads(given["content_json"])
    with pytest.raises(UnicodeEncodeError):
        text.encode()
    through_everything([text, "a good one"], tmp_path)
    trace = attempt("r0", 1.0)
    add_turn(trace, Message(role=Role.ASSISTANT, content=text), [5])
    with RunWriter.create(tmp_path / "other") as writer:
        for each in (attempt("before", 1.0), trace, attempt("after", 1.0)):
            writer.seal(each)
    reader = RunReader(tmp_path / "other", strict=True)
    assert reader.rollouts() == ["before", "r0", "after"]
    assert reader.get("r0").graph.messages[-1].content == text


def test_any_text_comes_back(tmp_path: Path) -> None:
    through_everything(ODD, tmp_path)


@pytest.mark.parametrize("line", ["x" * (1 << 20), "\ud835" * (1 << 16), "\u2028" * (1 << 16), "\0" * (1 << 18)])
def test_a_line_of_a_megabyte_comes_back(line: str, tmp_path: Path) -> None:
    trace = attempt("r0", None)
    add_user(trace, line, byte_ids(line.encode("utf-8", "surrogatepass")), role=Role.TOOL)
    trace.score(1.0, {line: 1.0})
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(trace)
    reader = RunReader(tmp_path / "run", strict=True)
    assert bits(reader.get("r0")) == bits(trace)
    export(reader, "jsonl", tmp_path / "out.jsonl")
    (row,) = map(json.loads, (tmp_path / "out.jsonl").read_text().splitlines())
    assert row["reward_parts"] == {line: 1.0}
    assert len(row["token_ids"]) == len(trace.graph.tokens)


def test_a_long_line_in_a_rollout() -> None:
    long = "x" * 100_000
    task = Task(id="t", prompt="go", target=long)
    script = Script([calls("read", "{}"), says("done")])
    (trace,) = asyncio.run(group(Echo, task, script.loaded(), 1))
    assert trace.graph.messages[2].content == long


@pytest.mark.parametrize("name", ["half \ud835 pair", "\udfff", "a\0b", "a\u2028b", "a/../b", "x" * 5000])
def test_odd_ids_go_through_store_and_export(name: str, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(attempt(name, 1.0, group=name))
        writer.seal(attempt("plain", 1.0))
        writer.annotate([Annotation(producer="person", name=name, rollout=name, value=name)])
    reader = RunReader(tmp_path / "run", strict=True)
    assert reader.rollouts() == [name, "plain"]
    assert audit(reader).rollouts == 2
    export(reader, "jsonl", tmp_path / "out.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "out.jsonl").read_bytes().decode("ascii").split("\n")[:-1]]
    assert [(row["rollout"], row["group"]) for row in rows] == [(name, name), ("plain", "g0")]


def test_a_form_that_cannot_hold_a_text_says_so_and_leaves_nothing(tmp_path: Path) -> None:
    sink = MemorySink()
    sink.seal(attempt("half \ud835 pair", 1.0))
    with pytest.raises(UsageError, match="'jsonl' can"):
        export(sink, "parquet", tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_half_a_surrogate_in_bytes_of_the_policy_stays_bytes() -> None:
    data = b"half \xed\xa0\xb5 pair"
    (turn,) = run_one(Talk, Script([reply([*byte_ids(data), 257])])).turns()
    assert turn.message.raw == data
    assert turn.message.content == data.decode(errors="replace")


# I05


class Failing(MemorySink):
    """A sink whose disk is full at some calls."""

    def __init__(self, *, turns: int = 0, seals: int = 0) -> None:
        super().__init__()
        self.turns, self.seals = turns, seals

    def turn(self, trace: Trace) -> None:
        self.turns -= 1
        if self.turns >= 0:
            raise StoreError("no room for this turn")

    def seal(self, trace: Trace) -> None:
        self.seals -= 1
        if self.seals >= 0:
            raise StoreError("no room for this trace")
        super().seal(trace)


class Answers(Environment):
    def __init__(self, given: Any) -> None:
        self.given = given

    async def final_state(self) -> Any:
        return FinalState(text=self.given["answer"], data=self.given)

    async def score(self, trace: Trace) -> float | None:
        return 0.75


@report("I05")
@pytest.mark.parametrize(("turns", "seals"), [(0, 0), (1, 0), (9, 0), (0, 1), (9, 1)])
def test_a_storage_failure_changes_neither_ending_nor_reward(given: dict[str, Any], turns: int, seals: int) -> None:
    log = json.loads(f'"{given["result"]["log"]}"')  # the report escapes its surrogate twice
    with pytest.raises(UnicodeEncodeError):
        log.encode()
    result = {**given["result"], "log": log}
    sink = Failing(turns=turns, seals=seals)
    trace = run_one(lambda: Answers(result), Script([says("ok")]), sink=sink)
    assert (trace.ending, trace.reward) == (Ending(Reason.FINAL_ANSWER), 0.75)
    assert trace.tail.final_state is not None
    assert trace.tail.final_state.data == result
    assert trace.sealed
    assert [error.where for error in trace.tail.errors] == ["store"] * (min(turns, 1) + seals)
    assert sink.get(trace.id) is trace


def test_a_disk_that_stays_full_is_loud_and_the_trace_is_whole() -> None:
    sink = Failing(turns=9, seals=9)
    with pytest.raises(StoreError, match="no room"):
        run_one(Talk, Script([says("ok")]), sink=sink)
    (trace,) = sink.running.values()
    assert (trace.ending, trace.reward) == (Ending(Reason.FINAL_ANSWER), 1.0)
    sink.seals = 0
    sink.seal(trace)
    assert sink.get(trace.id).text == "ok"


ODD_STATES = [object(), {1, 2}, {1: 2}, b"\xff", float("nan"), "\ud83d", 2**80]


@pytest.mark.parametrize("data", ODD_STATES)
def test_a_result_that_cannot_be_written_costs_no_rollout(data: Any, tmp_path: Path) -> None:
    """What the environment hands over may be anything; its neighbours and its own ending and reward stay."""
    script = Script([says("ok")])
    task = Task(id="t", prompt="go")

    class Mixed(Answers):
        async def score(self, trace: Trace) -> Rewards:
            return Rewards(0.75, parts={"a": 0.75})

    with RunWriter.create(tmp_path / "run") as writer:
        odd = {"answer": "ok", "log": data}
        made = iter([odd, {"answer": "ok"}, odd, {"answer": "ok"}])
        traces = asyncio.run(group(lambda: Mixed(next(made)), task, script.loaded(), 4, sink=writer))
    reader = RunReader(tmp_path / "run", strict=True)
    assert sorted(reader.rollouts()) == sorted(trace.id for trace in traces)
    assert [(trace.ending, trace.reward) for trace in reader.traces()] == [(Ending(Reason.FINAL_ANSWER), 0.75)] * 4
    for trace in traces:
        assert bits(reader.get(trace.id)) == bits(trace)
        assert (trace.tail.final_state is None) == any(error.where == "final_state" for error in trace.tail.errors)


def test_the_real_store_takes_the_record_of_the_report(tmp_path: Path) -> None:
    result = {"answer": "ok", "log": "\ud83d", "\ud83d": ["\udc00"]}
    with RunWriter.create(tmp_path / "run") as writer:
        trace = run_one(lambda: Answers(result), Script([says("ok")]), sink=writer)
    again = RunReader(tmp_path / "run", strict=True).get(trace.id)
    assert again.tail.errors == ()
    assert again.tail.final_state is not None
    assert again.tail.final_state.data == result


# I14


def python_value(value: Any) -> Any:
    """The report writes bytes as text: ``bytes 0x00ff``."""
    is_bytes = isinstance(value, str) and value.startswith("bytes 0x")
    return bytes.fromhex(value.removeprefix("bytes 0x")) if is_bytes else value


class Returns(Environment):
    def __init__(self, value: Any) -> None:
        self.value = value

    @tool
    async def get(self) -> Any:
        """Returns something."""
        return self.value


def returned(value: Any) -> tuple[Message, Trace]:
    trace = run_one(lambda: Returns(value), Script([calls("get", "{}"), says("done")]))
    assert trace.ending == Ending(Reason.FINAL_ANSWER)
    return trace.graph.messages[2], trace


@report("I14")
def test_what_tools_return_becomes_text_once(given: dict[str, Any]) -> None:
    found = [returned(python_value(value))[0] for value in given["tool_returns"]]
    assert [message.content for message in found] == ['{"k": 1}', "null", "3.5", '["a"]', "\0\\xff", ""]
    assert [message.value_type for message in found] == ["dict", "NoneType", "float", "list", "bytes", "str"]
    assert [message.raw for message in found] == [None, None, None, None, b"\x00\xff", None]
    assert all(message.fault is None for message in found)


class Point(msgspec.Struct):
    x: int


@pytest.mark.parametrize(
    ("value", "text", "value_type"),
    [
        (True, "true", "bool"),
        (0, "0", "int"),
        (2**80, str(2**80), "int"),
        ((1, None), "[1, null]", "tuple"),
        ({}, "{}", "dict"),
        ({"a": {"b": ["\ud835", "é"]}}, '{"a": {"b": ["\ud835", "é"]}}', "dict"),
        (b"plain", "plain", "bytes"),
        (b"", "", "bytes"),
        (Point(1), '{"x": 1}', "Point"),
        ("null", "null", "str"),
    ],
)
def test_every_value_has_one_text_and_keeps_its_type(value: Any, text: str, value_type: str, tmp_path: Path) -> None:
    message, trace = returned(value)
    assert (message.content, message.value_type) == (text, value_type)
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(trace)
    assert RunReader(tmp_path / "run").get(trace.id).graph.messages[2] == message


@report("I14")
def test_observations_of_a_step_become_text_by_the_same_conversion(given: dict[str, Any]) -> None:
    values = [python_value(value) for value in given["tool_returns"]]
    trace = run_one(lambda: Talk(values), Script([says("and?")]))
    seen = [(each.content, each.value_type, each.raw) for each in trace.graph.messages[2::2]]
    results = [returned(value)[0] for value in values]
    assert seen == [(each.content, each.value_type, each.raw) for each in results]


@pytest.mark.parametrize("value", [float("nan"), float("-inf"), {1}, {1: 2}, object(), [object()], {"a": {3: 4}}])
def test_what_has_no_text_is_a_fault_of_the_environment_that_is_said(value: Any) -> None:
    message, trace = returned(value)
    assert (message.fault, message.content.startswith("error: ")) == (Fault.ENVIRONMENT, True)
    assert trace.text == "done"
