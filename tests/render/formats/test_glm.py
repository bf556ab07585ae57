"""GLM's pairs of raw text."""

from __future__ import annotations

import pytest

from rollbook.render.formats import CallFormat
from rollbook.trace.message import ParseStatus, ToolCall
from tests.render.formats.writing import ADD, NOTHING, SUM, read, spec, spell, statuses, wrap

GLM = CallFormat.GLM
TOOL = spec("f", properties={"a": {"type": "integer"}, "s": {"type": "string"}}, additionalProperties=False)
both = pytest.mark.parametrize("marked", [True, False], ids=["tokens", "text"])


def one(body: str, *, marked: bool = True) -> ToolCall:
    (call,) = read(GLM, wrap(GLM, body), [TOOL, spec("do")], marked=marked).tool_calls
    return call


def pair(key: str, value: str) -> str:
    return f"<arg_key>{key}</arg_key>\n<arg_value>{value}</arg_value>"


@both
def test_the_spelling_with_and_without_line_ends(marked: bool) -> None:
    for between in ("\n", "", " \n\n"):
        body = between.join(["f", pair("a", "1"), pair("s", " x\n"), ""])
        assert one(body, marked=marked).arguments == {"a": 1, "s": " x\n"}
    said = read(GLM, "ok\n<tool_call>f\n<arg_key>a</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", [TOOL])
    assert (said.content, said.tool_calls[0].arguments) == ("ok\n", {"a": 1})
    assert one("f\n", marked=marked).arguments == {}


@both
@pytest.mark.parametrize(
    ("body", "status"),
    [
        ("", ParseStatus.MISSING_NAME),
        (" \n" + pair("a", "1"), ParseStatus.MISSING_NAME),
        ('{"name": "f", "arguments": {}}', ParseStatus.INVALID_JSON),
        ("f g", ParseStatus.INVALID_JSON),
        ("f\n" + pair("a", "1") + "x", ParseStatus.INVALID_JSON),
        ("f\n" + pair("a", "1") + "x" + pair("s", "1"), ParseStatus.BAD_ARGUMENTS),
        ("f\n<arg_key>a</arg_key>x<arg_value>1</arg_value>", ParseStatus.INVALID_JSON),
        ("f\n<arg_key>a</arg_key>", ParseStatus.INVALID_JSON),
        ("f\n<arg_value>1</arg_value>", ParseStatus.INVALID_JSON),
        ("f\n" + pair("a", "1") + pair("a", "2"), ParseStatus.INVALID_JSON),
        ("g\n" + pair("a", "1"), ParseStatus.UNKNOWN_TOOL),
        ("f\n" + pair("a", "one"), ParseStatus.BAD_ARGUMENTS),
        ("f\n" + pair("b", "1"), ParseStatus.BAD_ARGUMENTS),
    ],
)
def test_what_does_not_run(body: str, status: ParseStatus, marked: bool) -> None:
    call = one(body, marked=marked)
    assert (call.status, call.raw, call.arguments is None or "b" in body) == (status, body, True)


@both
@pytest.mark.parametrize(
    "value", ["a</arg_value>b", "<arg_value>", "<arg_key>a</arg_key>", pair("a", "1"), "</arg_key>"]
)
def test_markers_inside_a_value_are_ambiguous(value: str, marked: bool) -> None:
    call = one("f\n" + pair("s", value), marked=marked)
    if value == "<arg_value>" and not marked:
        assert call.status is ParseStatus.UNCLOSED  # in text, an opening that nothing closes leaves the value open
        return
    assert (call.status, call.name, call.arguments) == (ParseStatus.BAD_ARGUMENTS, "f", None)
    assert (call.error or "").startswith("ambiguous: ")


def test_calls_inside_a_value_never_run_where_markers_are_text() -> None:
    inner = spell(GLM, NOTHING)
    said = read(GLM, wrap(GLM, "f\n" + pair("s", f"{inner} {inner}")), [TOOL, spec("do")], marked=False)
    assert statuses(said) == [ParseStatus.OK]
    assert said.tool_calls[0].arguments == {"s": f"{inner} {inner}"}
    drafted = spell(GLM, SUM)
    said = read(GLM, wrap(GLM, "f\n" + pair("s", f"{drafted} {drafted}")), [TOOL, ADD], marked=False)
    assert statuses(said) == [ParseStatus.BAD_ARGUMENTS]
    assert (said.tool_calls[0].error or "").startswith("ambiguous: ")
