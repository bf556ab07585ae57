"""Bodies of tool calls: exact JSON, the order of checks, schemas, hostile sizes."""

from __future__ import annotations

import json
import socket
import threading
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ConfigError
from rollbook.render.calls import MAX_ERROR, Attempt, CallReader, json_call, read_json, text_of
from rollbook.trace.message import ParseStatus, ToolCall
from rollbook.trace.tools import ToolSpec
from tests.render.families import ADD

READER = CallReader()
FREE = ToolSpec(name="free", description="", parameters={"type": "object"})


def read(body: str | bytes, *tools: ToolSpec) -> ToolCall:
    data = body if isinstance(body, bytes) else body.encode("utf-8", "surrogatepass")
    return READER.read(lambda: json_call(text_of(data)), data, tools or (ADD, FREE), "t0")


GOOD = '{"name": "add", "arguments": {"a": 1, "b": 2}}'


@pytest.mark.parametrize("body", [GOOD, f"\n{GOOD}\n", f" \t\r\n{GOOD} ", '{"arguments":{"b":2,"a":1},"name":"add"}'])
def test_a_good_call(body: str) -> None:
    call = read(body)
    assert (call.status, call.name, call.arguments, call.error) == (ParseStatus.OK, "add", {"a": 1, "b": 2}, None)
    assert (call.id, call.raw) == ("t0", body)


BAD_JSON = [
    "",
    " ",
    "{",
    GOOD[:-1],
    GOOD + "}",
    GOOD + GOOD,
    "add(1, 2)",
    GOOD.replace('"', "'"),
    GOOD.replace("2}", "2,}"),
    GOOD.replace("2", "NaN"),
    GOOD.replace("2", "Infinity"),
    GOOD.replace("2", "-Infinity"),
    GOOD.replace("2", "02"),
    GOOD.replace("2", "+2"),
    GOOD.replace("2", "2."),
    GOOD.replace("2", ".2"),
    GOOD.replace("2", "0x2"),
    GOOD.replace("2", "True"),
    "\ufeff" + GOOD,
    "\u00a0" + GOOD,
    "```json\n" + GOOD + "\n```",
    GOOD + "// done",
    '{"name": "add", "name": "free", "arguments": {}}',
    '{"name": "free", "arguments": {"x": {"y": 1, "y": 1}}}',
    '{"name": "free", "arguments": {"x": "a\nb"}}',
    "{name: 1}",
    '{"name": "free", "arguments": {"x": "\\x41"}}',
    "[" * 100000,
    '{"a":' * 100000,
    '{"name": "free", "arguments": ' + "[" * 65 + "]" * 65 + "}",
]


@pytest.mark.parametrize("body", BAD_JSON)
def test_what_is_not_exact_json(body: str) -> None:
    call = read(body)
    assert call.status is ParseStatus.INVALID_JSON
    assert (call.name, call.arguments, call.raw) == (None, None, body)
    assert call.error is not None
    assert call.error.startswith("the tool call is not valid JSON: ")
    assert len(call.error) <= MAX_ERROR


@pytest.mark.parametrize(
    ("body", "status", "error"),
    [
        ("[]", ParseStatus.NOT_AN_OBJECT, "not an object"),
        ('"add"', ParseStatus.NOT_AN_OBJECT, "not an object"),
        ("null", ParseStatus.NOT_AN_OBJECT, "not an object"),
        (f"[{GOOD}]", ParseStatus.NOT_AN_OBJECT, "not an object"),
        ("{}", ParseStatus.MISSING_NAME, "no .name."),
        ('{"arguments": {"a": 1, "b": 2}}', ParseStatus.MISSING_NAME, "no .name."),
        ('{"name": null, "arguments": {}}', ParseStatus.MISSING_NAME, "no .name."),
        ('{"name": ["add"], "arguments": {}}', ParseStatus.MISSING_NAME, "no .name."),
        ('{"name": "add"}', ParseStatus.NOT_AN_OBJECT, "arguments"),
        ('{"name": "add", "arguments": null}', ParseStatus.NOT_AN_OBJECT, "arguments"),
        ('{"name": "add", "arguments": [1, 2]}', ParseStatus.NOT_AN_OBJECT, "arguments"),
        ('{"name": "add", "arguments": "{\\"a\\": 1, \\"b\\": 2}"}', ParseStatus.NOT_AN_OBJECT, "arguments"),
        ('{"name": "add", "parameters": {"a": 1, "b": 2}}', ParseStatus.NOT_AN_OBJECT, "arguments"),
        ('{"name": "add", "arguments": {"a": 1, "b": 2}, "id": 7}', ParseStatus.BAD_ARGUMENTS, "not 'id'"),
        ('{"name": "Add", "arguments": {"a": 1, "b": 2}}', ParseStatus.UNKNOWN_TOOL, "tools: add, free"),
        ('{"name": " add", "arguments": {"a": 1, "b": 2}}', ParseStatus.UNKNOWN_TOOL, "no tool ' add'"),
        ('{"name": "", "arguments": {}}', ParseStatus.UNKNOWN_TOOL, "no tool ''"),
        ('{"name": "add", "arguments": {}}', ParseStatus.BAD_ARGUMENTS, "'a' is a required property"),
        (
            '{"name": "add", "arguments": {"a": "1", "b": 2}}',
            ParseStatus.BAD_ARGUMENTS,
            r"arguments\.a: '1' is not of type 'integer'",
        ),
        ('{"name": "add", "arguments": {"a": true, "b": 2}}', ParseStatus.BAD_ARGUMENTS, r"arguments\.a: True is not"),
        ('{"name": "add", "arguments": {"a": 1.5, "b": 2}}', ParseStatus.BAD_ARGUMENTS, "1.5 is not"),
        ('{"name": "add", "arguments": {"a": 1, "b": 2, "c": 3}}', ParseStatus.BAD_ARGUMENTS, "'c' was unexpected"),
        ('{"name": "free", "arguments": {"a": 1e999}}', ParseStatus.BAD_ARGUMENTS, "too large"),
        ('{"name": "free", "arguments": {"a": [18446744073709551616]}}', ParseStatus.BAD_ARGUMENTS, "too large"),
        ('{"name": "free", "arguments": {"a": -9223372036854775809}}', ParseStatus.BAD_ARGUMENTS, "too large"),
        ('{"name": "free", "arguments": {"a": ' + "9" * 5000 + "}}", ParseStatus.BAD_ARGUMENTS, "too large"),
    ],
)
def test_the_first_check_that_fails_gives_the_status(body: str, status: ParseStatus, error: str) -> None:
    call = read(body)
    assert call.status is status
    assert call.raw == body
    with pytest.raises(AssertionError, match=error):
        raise AssertionError(call.error)


def test_numbers_at_the_edge_of_64_bits_are_taken() -> None:
    call = read('{"name": "free", "arguments": {"a": [18446744073709551615, -9223372036854775808, 1e308, 0.1]}}')
    assert call.arguments == {"a": [(1 << 64) - 1, -(1 << 63), 1e308, 0.1]}


def test_a_call_that_is_not_utf8() -> None:
    call = read(GOOD.encode().replace(b"add", b"\xf0\x9f"))
    assert call.status is ParseStatus.INVALID_JSON
    assert "\ufffd" in call.raw


def test_names_and_arguments_of_bad_calls_are_kept() -> None:
    call = read('{"name": "sub", "arguments": {"a": 1}}')
    assert (call.name, call.arguments) == ("sub", {"a": 1})


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 64) - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(max_examples=100, deadline=None)
@given(st.dictionaries(st.text(max_size=5), plain, max_size=3), st.booleans())
def test_any_json_arguments_come_back_as_they_were(arguments: dict[str, Any], ascii_only: bool) -> None:
    call = read(json.dumps({"name": "free", "arguments": arguments}, ensure_ascii=ascii_only))
    assert (call.status, call.arguments) == (ParseStatus.OK, arguments)
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(call.arguments)) == arguments


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from([*'{}[]:,"\\ \n', '"name"', '"arguments"', "1", "NaN", "é"]), max_size=12).map("".join))
def test_nothing_is_repaired(body: str) -> None:
    """Python's reader, told to be strict, is the yardstick."""
    try:
        value = json.loads(body, parse_constant=lambda name: json.loads(name + "!"))
    except ValueError:
        with pytest.raises(ValueError, match=r"."):
            read_json(body)
        return
    assert read_json(body) == value or body.count('"name"') > 1 or body.count('"arguments"') > 1 or body.count('""') > 1


@pytest.mark.parametrize(
    "body", ['{"x": "' + '\\"' * 300000, "[" * 300000, '"' * 300000, '{"a":1,' * 40000, "[1," * 200000]
)
def test_hostile_bodies_cost_little(body: str) -> None:
    started = time.process_time()
    assert read(body).status is ParseStatus.INVALID_JSON
    assert time.process_time() - started < 2.0


def test_calls_nest_as_deep_as_the_bound_and_no_deeper() -> None:
    def nested(depth: int) -> str:
        return '{"name": "free", "arguments": {"a": ' + "[" * (depth - 2) + "]" * (depth - 2) + "}}"

    assert read(nested(64)).status is ParseStatus.OK
    assert "deeper than 64" in (read(nested(65)).error or "")


def test_brackets_inside_strings_do_not_nest() -> None:
    assert read_json(json.dumps({"text": "[" * 1000 + '\\"{' * 100}))["text"].startswith("[[")


def test_duplicate_keys_are_named_in_linear_time() -> None:
    body = "{" + ", ".join(f'"k{n}": 1' for n in range(50000)) + ', "k49999": 2}'
    started = time.process_time()
    assert "'k49999' stands twice" in (read(body).error or "")
    assert time.process_time() - started < 2.0


def with_schema(**schema: Any) -> ToolSpec:
    return ToolSpec(name="tool", description="", parameters={"type": "object", **schema})


def test_a_remote_reference_is_never_fetched() -> None:
    for reference in ("http://127.0.0.1:9/schema.json", "https://example.invalid/x", "#/$defs/none", "other.json"):
        with pytest.raises(ConfigError, match="which is not in it"):
            read('{"name": "tool", "arguments": {"x": 1}}', with_schema(properties={"x": {"$ref": reference}}))


def test_no_connection_is_made_for_a_reference() -> None:
    seen: list[object] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def accept() -> None:
            connection, address = server.accept()
            seen.append(address)
            connection.close()

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        tool = with_schema(properties={"x": {"$ref": f"http://127.0.0.1:{port}/schema.json"}})
        with pytest.raises(ConfigError, match="which is not in it"):
            read('{"name": "tool", "arguments": {"x": 1}}', tool)
        assert not seen
        socket.create_connection(("127.0.0.1", port)).close()  # frees the thread
        thread.join()


@pytest.mark.parametrize("schema", [{"$ref": "#/properties/a"}, {"anyOf": [{"$ref": "#/properties/a"}, {}]}])
def test_a_reference_without_end_is_an_error_of_the_tool(schema: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="refers to itself without end"):
        read(
            '{"name": "t", "arguments": {"a": 1}}',
            ToolSpec(name="t", description="", parameters={"properties": {"a": schema}}),
        )


def test_a_reference_inside_the_schema_works() -> None:
    tool = with_schema(properties={"x": {"$ref": "#/$defs/word"}}, **{"$defs": {"word": {"type": "string"}}})
    assert read('{"name": "tool", "arguments": {"x": "a"}}', tool).status is ParseStatus.OK
    assert read('{"name": "tool", "arguments": {"x": 1}}', tool).status is ParseStatus.BAD_ARGUMENTS


def test_parameters_that_are_no_schema() -> None:
    with pytest.raises(ConfigError, match="tool tool: its parameters are not a JSON schema"):
        read('{"name": "tool", "arguments": {}}', with_schema(properties={"x": {"type": "nonsense"}}))


def test_compiled_schemas_are_kept_by_spec_and_bounded() -> None:
    reader = CallReader()
    for number in range(1100):
        tool = with_schema(properties={"x": {"const": number}})
        attempt = Attempt(name="tool", arguments={"x": number})
        assert reader.read(lambda made=attempt: made, b"", [tool], "t").status is ParseStatus.OK
        assert reader.read(lambda made=attempt: made, b"", [tool], "t").status is ParseStatus.OK


def test_error_texts_are_short() -> None:
    call = read(json.dumps({"name": "add", "arguments": {"a": "x" * 100000, "b": 1}}))
    assert call.status is ParseStatus.BAD_ARGUMENTS
    assert len(call.error or "") == MAX_ERROR
