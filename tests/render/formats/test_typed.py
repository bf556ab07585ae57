"""The table that gives raw text its types."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.render.calls import Attempt, CallReader, Refused, Schema
from rollbook.render.formats.typed import typed_arguments, typed_arguments_python
from rollbook.trace.message import ParseStatus
from tests.render.formats.writing import spec


def typed(text: str, schema: Any, **more: Any) -> Any:
    root = Schema({"type": "object", "properties": {"x": schema}, **more})
    return typed_arguments({"x": text}, root)["x"]


INT_OR_TEXT = {"anyOf": [{"type": "integer"}, {"type": "string"}]}


@pytest.mark.parametrize(
    ("text", "schema", "value"),
    [
        ("null", {"type": "string"}, "null"),
        ("007", {"type": "string"}, "007"),
        (" a\n", {"type": "string"}, " a\n"),
        ('{"arg2": "value2"}', {"type": ["object", "null"]}, {"arg2": "value2"}),
        ("null", {"type": ["object", "null"]}, None),
        ('["10", "20"]', {"type": "array", "items": {"type": "integer"}}, [10, 20]),
        ("true", {}, "true"),
        ("5", {}, "5"),
        ("5", True, "5"),
        ("5", {"description": "a value"}, "5"),
        ("true", {"type": "boolean"}, True),
        ("-0", {"type": "integer"}, 0),
        ("5", {"type": "number"}, 5),
        ("5.0", {"type": "number"}, 5.0),
        ("1e-07", {"type": "number"}, 1e-07),
        ("5", {"type": ["string", "integer"]}, 5),
        ("007", INT_OR_TEXT, "007"),
        ("99999999999999999999", INT_OR_TEXT, "99999999999999999999"),
        ("hello", {"oneOf": [{"type": "string"}, {"type": "boolean"}]}, "hello"),
        ("null", {"type": ["string", "null"]}, None),
        ("[1]", {"type": ["array", "string"]}, [1]),
        ("[1", {"type": ["array", "string"]}, "[1"),
        ("{}", {"type": ["array", "string"]}, "{}"),
        ("1", {"enum": ["1", "2"]}, "1"),
        ("1", {"enum": [1, "1"]}, 1),
        ("2", {"enum": ["2", 1]}, "2"),
        ("true", {"const": True}, True),
        ("1.5", {"const": 1.5}, 1.5),
        ("null", {"enum": [None, "a"]}, None),
        ("[]", {"enum": [[], {}]}, []),
        ("{}", {"enum": [[], {}]}, {}),
        ("5", {"$ref": "#/$defs/n"}, 5),
        ("5", {"anyOf": [{"$ref": "#/$defs/n"}, {"type": "null"}]}, 5),
        ("5", {"$ref": "#/$defs/loop"}, "5"),
        ("50", {"anyOf": [{"type": "integer", "maximum": 9}, {"type": "string"}]}, "50"),
        ("5", {"allOf": [{"type": "integer"}]}, 5),
        ('{"a": "1", "b": "1", "c": ["true"]}', {"$ref": "#/$defs/deep"}, {"a": 1, "b": "1", "c": [True]}),
        ('["1", "x", "2.5"]', {"type": "array", "prefixItems": [{"type": "integer"}], "items": {}}, [1, "x", "2.5"]),
        ('["null"]', {"type": "array", "items": {"type": "null"}}, ["null"]),
        ('{"k": "3"}', {"type": "object", "additionalProperties": {"type": "number"}}, {"k": 3}),
        ('[["1"], "[2]"]', {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}, [[1], "[2]"]),
    ],
)
def test_the_table(text: str, schema: Any, value: Any) -> None:
    loop = {"anyOf": [{"$ref": "#/$defs/loop"}]}
    deep = {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": ["integer", "string"]},
            "c": {"type": "array", "items": {"type": "boolean"}},
        },
    }
    found = typed(text, schema, **{"$defs": {"n": {"type": "integer"}, "loop": loop, "deep": deep}})
    assert (type(found), found) == (type(value), value)
    assert json.dumps(found) == json.dumps(value)


@pytest.mark.parametrize(
    ("text", "schema", "kinds"),
    [
        ("hello", {"type": "boolean"}, "boolean"),
        ("True", {"type": "boolean"}, "boolean"),
        ("None", {"type": "null"}, "null"),
        ("1", {"type": "boolean"}, "boolean"),
        ("007", {"type": "integer"}, "integer"),
        ("+1", {"type": "integer"}, "integer"),
        ("1.0", {"type": "integer"}, "integer"),
        (" 1", {"type": "integer"}, "integer"),
        ("1_000", {"type": "integer"}, "integer"),
        ("\u0661", {"type": "integer"}, "integer"),
        ("", {"type": "integer"}, "integer"),
        ("99999999999999999999", {"type": "integer"}, "integer"),
        ("1e999", {"type": "number"}, "integer or number"),
        ("NaN", {"type": "number"}, "integer or number"),
        (".5", {"type": "number"}, "integer or number"),
        ("{'a': 1}", {"type": "object"}, "object"),
        ("[1,]", {"type": "array"}, "array"),
        ("[1e999]", {"type": "array"}, "array"),
        ("[" * 80, {"type": "array"}, "array"),
        ("{}", {"type": "array"}, "array"),
        ("x", {"type": ["null", "integer"]}, "null or integer"),
    ],
)
def test_what_fits_nothing_is_told(text: str, schema: Any, kinds: str) -> None:
    with pytest.raises(Refused, match=rf"^arguments\.x: .* spells no {kinds}$") as refused:
        typed(text, schema)
    assert refused.value.status is ParseStatus.BAD_ARGUMENTS


def test_python_words_where_the_template_writes_them() -> None:
    root = Schema({"properties": {"x": {"type": ["boolean", "null"]}, "s": {"type": "string"}}})
    for text, value in (("True", True), ("False", False), ("None", None), ("true", True), ("null", None)):
        assert typed_arguments_python({"x": text, "s": text}, root) == {"x": value, "s": text}


def test_keys_that_the_schema_does_not_name() -> None:
    root = Schema({"type": "object", "additionalProperties": {"type": "integer"}})
    assert typed_arguments({"a": "1"}, root) == {"a": 1}
    assert typed_arguments({"a": "1"}, Schema({"type": "object", "additionalProperties": False})) == {"a": "1"}
    assert typed_arguments({"a": "1"}, Schema({"type": "object"})) == {"a": "1"}


def test_a_reference_that_leads_nowhere_is_the_tools_fault() -> None:
    tool = spec("tool", properties={"x": {"$ref": "#/$defs/none"}})
    attempt = Attempt(name="tool", arguments={"x": "1"}, convert=typed_arguments)
    with pytest.raises(ConfigError, match="which is not in it"):
        CallReader().read(lambda: attempt, b"", [tool], "t")


KINDS = ["null", "boolean", "integer", "number", "object", "array", "string"]


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.sampled_from(KINDS), min_size=1, max_size=3, unique=True),
    st.sampled_from(["null", "true", "1", "-1.5", "{}", "[]", '["1"]', "x", "", "01", '{"a": [1]}'])
    | st.text(max_size=5),
)
def test_what_is_made_fits_or_is_refused(kinds: list[str], text: str) -> None:
    root = Schema({"properties": {"x": {"type": kinds}}})
    try:
        made = typed_arguments({"x": text}, root)
    except Refused:
        assert "string" not in kinds
        return
    assert root.is_valid(made)  # pyright: ignore[reportUnknownMemberType]
    if not isinstance(made["x"], str):
        assert json.loads(text) == made["x"]


@settings(max_examples=100, deadline=None)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-99, 99) | st.text(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    )
)
def test_json_values_come_back_where_their_type_is_the_schemas(value: Any) -> None:
    kind = next(
        k
        for k, t in (
            ("null", type(None)),
            ("boolean", bool),
            ("integer", int),
            ("string", str),
            ("array", list),
            ("object", dict),
        )
        if isinstance(value, t)
    )
    text = value if isinstance(value, str) else json.dumps(value)
    assert typed(text, {"type": kind}) == value
