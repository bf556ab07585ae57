"""Llama's JSON replies: when a reply is a call, and when it is content."""

from __future__ import annotations

import pytest

from rollbook.render.formats import CallFormat
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import read, said_calls, statuses

LLAMA = CallFormat.LLAMA_JSON
ADD = '{"name": "add", "parameters": {"a": 1, "b": 2}}'
DO = '{"name": "do", "parameters": {}}'


@pytest.mark.parametrize("text", [ADD, f" \n{ADD}\n", f"<|python_tag|>{ADD}", f"<|python_tag|> {ADD}"])
def test_one_call(text: str) -> None:
    said = read(LLAMA, text)
    assert (said.content, said_calls(said)) == ("", [("add", {"a": 1, "b": 2})])
    assert said.tool_calls[0].raw == text.removeprefix("<|python_tag|>")


@pytest.mark.parametrize("text", [f"{ADD}; {DO}", f"<|python_tag|>{ADD};{DO}", f"<|python_tag|>{ADD} ;\n {DO} "])
def test_several_calls(text: str) -> None:
    said = read(LLAMA, text)
    assert statuses(said) == [ParseStatus.OK] * 2
    assert [call.raw for call in said.tool_calls] == [ADD, DO]


@pytest.mark.parametrize(
    "text",
    [
        '{"type": "function", "name": "do", "parameters": {}}',
        '{"name": "do", "parameters": {}, "type": "function"}',
    ],
)
def test_the_type_that_the_documentation_shows_is_taken(text: str) -> None:
    for shown in (text, f"<|python_tag|>{text}"):
        said = read(LLAMA, shown)
        assert (said_calls(said), said.tool_calls[0].raw) == ([("do", {})], text)


def test_a_semicolon_inside_a_string_separates_nothing() -> None:
    said = read(LLAMA, '{"name": "say", "parameters": {"text": "a; b"}}; ' + DO)
    assert said_calls(said) == [("say", {"text": "a; b"}), ("do", {})]


@pytest.mark.parametrize(
    "text",
    [
        '{"answer": 5}',
        "{}",
        "{",
        "{}; {}",
        f"I call {ADD}",
        f"[{ADD}]",
        '{"names": 1}',
        '"name"',
        "{name: 1}",
        '{"name": "Ann", "age": 3}',
        '{"type": "object"}',
        '{"name": "sub"}',
    ],
)
def test_other_replies_are_content(text: str) -> None:
    said = read(LLAMA, text)
    assert (said.content, said.tool_calls) == (text, ())


@pytest.mark.parametrize(
    ("text", "status"),
    [
        (ADD + "}", ParseStatus.INVALID_JSON),
        (ADD + " trailing", ParseStatus.INVALID_JSON),
        (ADD + ADD, ParseStatus.INVALID_JSON),
        (ADD + ";", ParseStatus.INVALID_JSON),
        (ADD + ", " + DO, ParseStatus.INVALID_JSON),
        (ADD.replace('"', "'"), ParseStatus.INVALID_JSON),
        (f"```json\n{ADD}\n```", ParseStatus.INVALID_JSON),
        (f"```\n{ADD}\n```", ParseStatus.INVALID_JSON),
        ('{"name": "do", "parameters": {"action": listt_windows"}}', ParseStatus.INVALID_JSON),
        ('{"name": "do", }', ParseStatus.INVALID_JSON),
        ('{"name": "add", "parameters": ' + "[" * 100, ParseStatus.INVALID_JSON),
        ('{"name": "add", "arguments": {"a": 1, "b": 2}}', ParseStatus.NOT_AN_OBJECT),
        ('{"name": "add"}', ParseStatus.NOT_AN_OBJECT),
        ('{"parameters": {}}', ParseStatus.MISSING_NAME),
        ('{"type": "tool", "name": "do", "parameters": {}}', ParseStatus.BAD_ARGUMENTS),
        ('{"name": "do", "parameters": {}, "type": ["function"]}', ParseStatus.BAD_ARGUMENTS),
        ('{"type": "function", "name": "do", "parameters": {}, "id": 1}', ParseStatus.BAD_ARGUMENTS),
        ('{"type": "function", "function": {"name": "do", "parameters": {}}}', ParseStatus.MISSING_NAME),
        ('<|python_tag|>brave_search.call(query="x")', ParseStatus.INVALID_JSON),
        ("<|python_tag|>", ParseStatus.INVALID_JSON),
        ("<|python_tag|>[]", ParseStatus.NOT_AN_OBJECT),
    ],
)
def test_attempts_that_do_not_run(text: str, status: ParseStatus) -> None:
    said = read(LLAMA, text)
    assert (statuses(said), said.content) == ([status], "")
    assert said.tool_calls[0].raw == text.removeprefix("<|python_tag|>")


def test_text_before_the_tag_is_content() -> None:
    said = read(LLAMA, f"So: <|python_tag|>{DO}")
    assert (said.content, said_calls(said)) == ("So: ", [("do", {})])
    first = read(LLAMA, f"{ADD}<|python_tag|>{DO}")
    assert (first.content, said_calls(first)) == (ADD, [("do", {})])
    assert len(read(LLAMA, f"<|python_tag|>{DO}<|python_tag|>{DO}").tool_calls) == 2


def test_a_cut_reply() -> None:
    assert statuses(read(LLAMA, ADD[:-2], cut=True)) == [ParseStatus.CUT]
    assert statuses(read(LLAMA, ADD, cut=True)) == [ParseStatus.CUT]
    assert read(LLAMA, '{"na', cut=True).content == '{"na'
