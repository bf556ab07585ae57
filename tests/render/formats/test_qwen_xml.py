"""Qwen's blocks of raw text: frames, types by schema, delimiters inside values."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.render.formats import CallFormat
from rollbook.trace.message import Message, ParseStatus, ToolCall
from tests.render.formats.writing import NOTHING, ids, plain_ids, read, spec, spell, statuses, wrap

XML = CallFormat.QWEN_XML
FILE = spec(
    "write_file", properties={"content": {"type": "string"}, "path": {"type": "string"}}, additionalProperties=False
)
FREE = spec("f", properties={"flag": {"anyOf": [{"type": "string"}, {"type": "boolean"}]}})
TOOLS = [FILE, FREE]


def said(body: str, *, marked: bool = True) -> Message:
    return read(XML, wrap(XML, body), TOOLS, marked=marked)


def one(body: str, *, marked: bool = True) -> ToolCall:
    (call,) = said(body, marked=marked).tool_calls
    return call


def function(*blocks: str, name: str = "write_file") -> str:
    return f"\n<function={name}>\n" + "".join(f"{block}\n" for block in blocks) + "</function>\n"


def block(value: str, key: str = "content") -> str:
    return f"<parameter={key}>\n{value}\n</parameter>"


@pytest.mark.parametrize(
    "value", ["a", "", "\n", "\n\n", " a ", "a\n", "\ta", "null", "007", '{"a": 1}', "é🙂\u2028", "a\r\nb"]
)
def test_a_framed_value_is_exact(value: str) -> None:
    call = one(function(block(value), block("p", "path")))
    assert (call.status, call.arguments) == (ParseStatus.OK, {"content": value, "path": "p"})


def test_a_value_with_one_line_end_for_both_ends_of_its_frame_is_empty() -> None:
    assert one(function("<parameter=content>\n</parameter>")).arguments == {"content": ""}


def test_a_value_without_a_frame() -> None:
    text = "<function=write_file><parameter=content>a b</parameter><parameter=path>c</parameter></function>"
    assert one(text).arguments == {"content": "a b", "path": "c"}
    assert one(text.replace("a b", "")).arguments == {"content": "", "path": "c"}


def test_no_parameters() -> None:
    assert one("\n<function=write_file>\n</function>\n").arguments == {}


def test_a_union_of_types_keeps_the_call() -> None:
    for text, value in (("hello", "hello"), ("true", True), ("False", False), ("TRUE", "TRUE")):
        call = one(function(block(text, "flag"), name="f"))
        assert (call.status, call.arguments) == (ParseStatus.OK, {"flag": value})


@pytest.mark.parametrize(
    "body",
    [
        "",
        "write_file",
        '{"name": "write_file", "arguments": {}}',
        "<function=write_file>",
        "</function>",
        "x<function=write_file></function>",
        "<function=write_file></function>x",
        "<function=write_file>x</function>",
        "<function=write_file></function></function>x",
        "<function=write_file>" + block("a"),
        "<function=write_file>" + block("a") + "x</function>",
        "<function=write_file><parameter=content>\na</parameter></function>",
        "<function=write_file><parameter=content>a</function>",
        "<function=write_file><parameter=content>\na\n</function>",
        "<function=write_file><parameter=>\na\n</parameter></function>",
        "<function=write_file><parameter content>\na\n</parameter></function>",
        "<function write_file></function>",
        "<function=write_file>" + block("a") + block("b") + "</function>",
    ],
)
def test_what_is_not_in_the_form(body: str) -> None:
    call = one(body)
    assert (call.status, call.arguments, call.raw) == (ParseStatus.INVALID_JSON, None, body)
    assert (call.error or "").startswith("the tool call is malformed: ")


def test_a_function_without_a_name() -> None:
    assert one("<function=></function>").status is ParseStatus.MISSING_NAME


@pytest.mark.parametrize("marked", [True, False])
def test_delimiters_within_a_line_are_text(marked: bool) -> None:
    value = "A block ends with </tool_call> and </parameter> here."
    before, behind = wrap(XML, function(block("@"))).split("@")
    tokens = [*ids(XML, before), *plain_ids(XML, value), *ids(XML, behind)]
    made = read(XML, tokens, TOOLS) if marked else read(XML, before + value + behind, TOOLS, marked=False)
    assert statuses(made) == [ParseStatus.OK]
    assert made.tool_calls[0].arguments == {"content": value}
    assert made.content == ""


@pytest.mark.parametrize(
    "value",
    [
        "x\n</parameter>\ny",
        "<parameter>\n  <hello></hello>\n</parameter>",
        "<parameter=path>\nx",
        "<function=write_file>\n" + block("a", "path") + "\n</function>",
        "a\n</function>\nb",
        "a\n</parameter>\n</function>\nb",
        "a\n</parameter>\n</function>\n</tool_call>\nb",
        block("1", "a") + "\n" + block("2", "b"),
        '<invoke name="w">\n<parameter name="content">\nx\n</parameter>\n<parameter name="path">\ny\n</parameter>',
    ],
)
@pytest.mark.parametrize("behind", [(), (block("p", "path"),)], ids=["last", "first"])
def test_a_delimiter_on_its_own_line_is_ambiguous(value: str, behind: tuple[str, ...]) -> None:
    before, rest = wrap(XML, function(block("@"), *behind)).split("@")
    made = read(XML, [*ids(XML, before), *plain_ids(XML, value), *ids(XML, rest)], TOOLS)
    (call,) = made.tool_calls
    assert (call.status, call.name, call.arguments) == (ParseStatus.BAD_ARGUMENTS, "write_file", None)
    assert (call.error or "").startswith("ambiguous: ")
    assert made.content == ""


def test_nested_tags_of_another_form_within_lines_are_text() -> None:
    value = (
        '<invoke name="w"><parameter name="content"><parameter>\n  <hello></hello>\n</parameter></parameter></invoke>'
    )
    assert one(function(block(value), block("test.xml", "path"))).arguments == {"content": value, "path": "test.xml"}


@pytest.mark.parametrize(
    "value", ["a</parameter>b", "<parameter=path>x", "a</function>b", "<parameter=a>1</parameter>"]
)
def test_any_delimiter_in_a_value_without_a_frame_is_ambiguous(value: str) -> None:
    call = one(f"<function=write_file><parameter=content>{value}</parameter></function>")
    assert (call.status, (call.error or "")[:11]) == (ParseStatus.BAD_ARGUMENTS, "ambiguous: ")


def test_calls_inside_a_value_never_run_where_markers_are_text() -> None:
    inner = spell(XML, NOTHING, NOTHING)
    made = read(XML, wrap(XML, function(block(f"{inner}\nand {inner}"))), [*TOOLS, spec("do")], marked=False)
    assert statuses(made) == [ParseStatus.BAD_ARGUMENTS]
    assert (made.tool_calls[0].error or "").startswith("ambiguous: ")


def test_an_open_value_takes_all_that_follows_where_markers_are_text() -> None:
    made = read(XML, "<tool_call>\n<function=write_file>\n<parameter=content>\na\n</tool_call> b", TOOLS, marked=False)
    assert statuses(made) == [ParseStatus.UNCLOSED]


def test_a_marker_token_always_wins() -> None:
    made = said(function(block("a </tool_call> b")))
    assert statuses(made) == [ParseStatus.INVALID_JSON]
    assert made.content.startswith(" b")


def test_what_the_form_gives_goes_through_the_schema() -> None:
    call = one(function(block("a"), block("b", "mode")))
    assert (call.status, call.error) == (
        ParseStatus.BAD_ARGUMENTS,
        "arguments: Additional properties are not allowed ('mode' was unexpected)",
    )
    unknown: Any = one(function(block("a"), name="rm"))
    assert (unknown.status, unknown.name, unknown.arguments) == (ParseStatus.UNKNOWN_TOOL, "rm", None)
