"""The tool prompt: its text, its examples, its name in the record."""

from __future__ import annotations

import msgspec
import pytest

from rollbook.errors import ConfigError
from rollbook.render.formats import CallFormat, ReplyReader
from rollbook.render.toolprompt import HERMES_EXAMPLES, ToolPrompt
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall
from rollbook.trace.tools import ToolSpec
from tests.render.families import ADD, encoder

CALCULATOR = ToolSpec(
    name="calculator",
    description="evaluate an arithmetic expression",
    parameters={"type": "object", "properties": {"expression": {"type": "string"}}, "required": ["expression"]},
)
USER = Message(role=Role.USER, content="Compute 2+3")


def test_signatures_and_json() -> None:
    odd = ToolSpec(
        name="odd",
        description="Odd {tools}.",
        parameters={"properties": {"x": {}, "y": {"type": ["a", "b"]}, "z": True}},
    )
    prompt = ToolPrompt(name="p", text="A {signatures} B {tools} C {signatures}")
    text = prompt.opening([USER], [ADD, odd])[0].content
    lines = "add(a: integer, b: integer): Adds two numbers.\nodd(x?: any, y?: any, z?: any): Odd {tools}."
    assert text.startswith(f'A {lines} B {{"name": "add", "description"')
    assert text.endswith(f" C {lines}")


def test_a_system_message_keeps_its_own_text() -> None:
    prompt = ToolPrompt(name="p", text="{signatures}")
    assert [one.role for one in prompt.opening([USER], [ADD])] == [Role.SYSTEM, Role.USER]
    own = prompt.opening([Message(role=Role.SYSTEM, content="Own."), USER], [ADD])
    assert own[0].content.startswith("Own.\n\nadd(")
    assert own[1] is USER
    assert prompt.opening([Message(role=Role.SYSTEM), USER], [ADD])[0].content.startswith("add(")


def test_examples_are_played_for_offered_tools_only() -> None:
    assert len(HERMES_EXAMPLES.opening([USER], [ADD])) == 2
    shown = HERMES_EXAMPLES.opening([USER], [ADD, CALCULATOR])
    assert len(shown) == 2 + 4 * len(HERMES_EXAMPLES.examples)
    assert [one.role for one in shown[1:5]] == [Role.USER, Role.ASSISTANT, Role.TOOL, Role.ASSISTANT]
    assert shown[3].call_id == shown[2].tool_calls[0].id


def test_examples_are_calls_that_our_parser_takes() -> None:
    made = encoder(marked=False)
    parser = ReplyReader(CallFormat.HERMES, made.vocabulary, made.added)
    for example in HERMES_EXAMPLES.examples:
        text = HERMES_EXAMPLES.call_text(example.messages("c")[1].tool_calls[0])
        said = parser.parse(
            made.encode_content(text).tolist(), [CALCULATOR], inside_reasoning=False, cut=False, call_prefix=""
        )
        assert [call.status for call in said.tool_calls] == [ParseStatus.OK]
        left, operator, right = (
            part
            for part in example.arguments["expression"]
            .replace("*", " * ")
            .replace("+", " + ")
            .replace("-", " - ")
            .split()
        )
        value = {"*": int(left) * int(right), "+": int(left) + int(right), "-": int(left) - int(right)}[operator]
        assert str(value) == example.result


def test_a_call_keeps_its_raw_text() -> None:
    call = ToolCall(id="c", name="add", arguments={"a": 1}, raw='{"name":"add","arguments":{"a":1}}')
    assert HERMES_EXAMPLES.call_text(call) == f"<tool_call>{call.raw}</tool_call>"


def test_results_are_wrapped() -> None:
    prompt = ToolPrompt(name="p", text="{tools}", result_role=Role.USER, result_open="<r>", result_close="</r>")
    assert prompt.result_text("5") == "<r>5</r>"
    assert HERMES_EXAMPLES.result_text("5") == "5"


def test_the_label_tells_every_change() -> None:
    changes = [
        {"text": "{tools}!"},
        {"result_open": "x"},
        {"examples": ()},
        {"result_role": Role.USER},
        {"name": "other"},
    ]
    labels = {msgspec.structs.replace(HERMES_EXAMPLES, **change).label for change in changes}
    assert len(labels | {HERMES_EXAMPLES.label}) == 6
    assert HERMES_EXAMPLES.label.startswith("hermes-examples@")


def test_prompts_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"neither \{tools\} nor \{signatures\}"):
        ToolPrompt(name="p", text="Use tools.")
    with pytest.raises(ConfigError, match="results go as role tool or user, not system"):
        ToolPrompt(name="p", text="{tools}", result_role=Role.SYSTEM)
