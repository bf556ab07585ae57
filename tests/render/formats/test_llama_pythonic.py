"""Python calls, read without evaluating anything."""

from __future__ import annotations

import ast
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.render.formats import CallFormat
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import read, said_calls, spec, statuses

PY = CallFormat.LLAMA_PYTHONIC
FREE = [spec("f"), spec("g.h")]


def arguments(text: str) -> dict[str, Any] | None:
    said = read(PY, f"[f({text})]", FREE)
    assert statuses(said) == [ParseStatus.OK], said.tool_calls
    return said.tool_calls[0].arguments


def test_calls_with_their_text() -> None:
    said = read(PY, " [ f( a = 1 , b='x' ) ,\n g.h() ]\n", FREE)
    assert said_calls(said) == [("f", {"a": 1, "b": "x"}), ("g.h", {})]
    assert [call.raw for call in said.tool_calls] == ["f( a = 1 , b='x' )", "g.h()"]
    marked = read(PY, "ok <|python_start|>[f()]<|python_end|>", FREE)
    assert (marked.content, said_calls(marked)) == ("ok ", [("f", {})])


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("True", True),
        ("None", None),
        ("-1", -1),
        ("1.5e3", 1500.0),
        ("18446744073709551615", (1 << 64) - 1),
        ("[]", []),
        ("[1, [False]]", [1, [False]]),
        ("{'a': {\"b\": []}}", {"a": {"b": []}}),
        (r"'it\'s \n \x41 \u00e9 \U0001F642 \\ \0'", "it's \n A é 🙂 \\ \0"),
        ("'[f(x=1)] # no'", "[f(x=1)] # no"),
    ],
)
def test_literals(text: str, value: Any) -> None:
    assert arguments(f"x={text}") == {"x": value}


@pytest.mark.parametrize(
    "text",
    [
        "[f(1)]",
        "[f(*x)]",
        "[f(**x)]",
        "[f(x=y)]",
        "[f(x=__import__('os'))]",
        "[f(x=1+1)]",
        "[f(x=(1, 2))]",
        "[f(x={1})]",
        "[f(x={1: 2})]",
        "[f(x={'a': 1, 'a': 2})]",
        "[f(x=1, x=2)]",
        "[f(x=f'a')]",
        "[f(x=b'a')]",
        "[f(x=r'a')]",
        "[f(x='a' 'b')]",
        "[f(x='''a''')]",
        "[f(x='a\nb')]",
        "[f(x='\\d')]",
        "[f(x='\\N{BULLET}')]",
        "[f(x='\\ud8')]",
        "[f(x='\0')]",
        "[f(x=007)]",
        "[f(x=1_000)]",
        "[f(x=0x1)]",
        "[f(x=1j)]",
        "[f(x=1.)]",
        "[f(x=--1)]",
        "[f(x=true)]",
        "[f(x=null)]",
        "[f(x=1,)]",
        "[f(x=1),]",
        "[f(x=1]",
        "[f(x=1)",
        "[f(x=1)] and more",
        "[f(x=1)]]",
        "[f(x=1), 2]",
        "[f(x=1)(y=2)]",
        "[f(x=[1)]",
        "[f(x=" + "[" * 100,
        "[f(x=" + "[" * 100000,
        "[f(x=" + "[" * 70 + "]" * 70 + ")]",
        "[f(x=" + "-" * 10000,
        "[f(x='" + "a" * 50000,
        "[f(x='" + "\\" * 50001,
        "[f(;)]",
    ],
)
def test_what_is_no_list_of_calls(text: str) -> None:
    said = read(PY, text, FREE)
    assert (statuses(said), said.content) == ([ParseStatus.INVALID_JSON], "")
    assert (said.tool_calls[0].raw, said.tool_calls[0].arguments) == (text, None)
    assert (said.tool_calls[0].error or "").startswith("the tool call is malformed: ")


@pytest.mark.parametrize(
    "text", ["[]", "[1, 2]", "f(x=1)", "I call [f()]", "[f]", "['f(']", "[f[0](x=1)]", "```\n[f()]\n```"]
)
def test_other_replies_are_content(text: str) -> None:
    said = read(PY, text, FREE)
    assert (said.content, said.tool_calls) == (text, ())


def test_an_empty_list_between_markers() -> None:
    assert statuses(read(PY, "<|python_start|>[]<|python_end|>", FREE)) == [ParseStatus.INVALID_JSON]
    assert statuses(read(PY, "<|python_start|>[f()]", FREE)) == [ParseStatus.UNCLOSED]


@pytest.mark.parametrize("number", ["1e999", "18446744073709551616", "9" * 5000])
def test_numbers_that_are_too_large(number: str) -> None:
    said = read(PY, f"[f(x=[{number}]), f()]", FREE)
    assert statuses(said) == [ParseStatus.BAD_ARGUMENTS, ParseStatus.OK]
    assert said.tool_calls[0].name == "f"


def test_lists_nest_as_deep_as_the_bound() -> None:
    deepest = "[" * 62 + "]" * 62
    assert arguments(f"x={deepest}") == {"x": ast.literal_eval(deepest)}
    assert statuses(read(PY, f"[f(x=[{deepest}])]", FREE)) == [ParseStatus.INVALID_JSON]


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(plain)
def test_any_literal_comes_back(value: Any) -> None:
    assert json.dumps(arguments(f"x={value!r}")) == json.dumps({"x": value})


@settings(max_examples=200, deadline=None)
@given(st.lists(st.sampled_from([*"[](){},=:'\"\\ \n-.", "f", "x", "1", "None", "é", "x="]), max_size=14).map("".join))
def test_what_is_read_is_what_python_reads(text: str) -> None:
    said = read(PY, f"[f(x={text})]", FREE)
    if statuses(said) == [ParseStatus.OK] * len(said.tool_calls) and said.tool_calls:
        tree = ast.parse(f"[f(x={text})]".strip(), mode="eval").body
        assert isinstance(tree, ast.List)
        calls = [call for call in tree.elts if isinstance(call, ast.Call)]
        read_by_python = [{word.arg: ast.literal_eval(word.value) for word in call.keywords} for call in calls]
        assert [call.arguments for call in said.tool_calls] == read_by_python
