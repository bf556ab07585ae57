"""Messages: identity is what is said, not how it is spelled."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given

from rollbook.trace import Message, ParseStatus, Role, ToolCall, message_key
from rollbook.trace.message import canonical_bytes
from tests.strategies import json_values, messages


def call(**fields: Any) -> Message:
    return Message(role=Role.ASSISTANT, tool_calls=(ToolCall(**{"id": "c", "name": "f", **fields}),))


def turned(value: Any) -> Any:
    """The same JSON value with the keys of each object in reverse order."""
    match value:
        case dict():
            return {key: turned(value[key]) for key in reversed(list(value))}
        case list():
            return [turned(item) for item in value]
        case _:
            return value


@given(messages())
def test_a_message_equals_its_copy(message: Message) -> None:
    copy = msgspec.structs.replace(message, name="other tool", value_type="str")
    assert message_key(message) == message_key(copy)
    assert len(message_key(message)) == 16


@given(json_values())
def test_the_order_of_keys_does_not_matter(value: Any) -> None:
    assert canonical_bytes([value]) == canonical_bytes([turned(value)])
    assert message_key(call(arguments={"a": value, "b": 1})) == message_key(
        call(arguments={"b": 1, "a": turned(value)})
    )


@given(messages(), messages())
def test_keys_differ_where_messages_differ(left: Message, right: Message) -> None:
    def said(message: Message) -> Any:
        calls = [(c.name, c.arguments if c.arguments is not None else (c.raw, c.status)) for c in message.tool_calls]
        return repr((message.role, message.content, message.reasoning, calls, message.raw))

    if said(left) == said(right):
        assert message_key(left) == message_key(right)
    if message_key(left) == message_key(right):
        assert (left.role, left.content, left.reasoning) == (right.role, right.content, right.reasoning)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (Message(role=Role.USER, content="a"), Message(role=Role.TOOL, content="a")),
        (Message(role=Role.USER, content="a"), Message(role=Role.USER, content="a ")),
        (Message(role=Role.ASSISTANT), Message(role=Role.ASSISTANT, reasoning="")),
        (Message(role=Role.TOOL), Message(role=Role.TOOL, raw=b"\xff")),
        (call(arguments={}), call(arguments={"a": None})),
        (call(arguments={"a": 10**30}), call(arguments={"a": 10**30 + 1})),
        (call(arguments={"a": "\ud83d"}), call(arguments={"a": "\udc00"})),
        (call(raw="{"), call(raw="{{")),
        (call(raw="{", status=ParseStatus.CUT), call(raw="{", status=ParseStatus.UNCLOSED)),
    ],
)
def test_what_is_said_differently_has_another_key(left: Message, right: Message) -> None:
    assert message_key(left) != message_key(right)


def test_ids_and_spellings_of_calls_do_not_matter() -> None:
    assert message_key(call(arguments={"a": 1}, raw="x")) == message_key(call(id="d", arguments={"a": 1}, raw="y"))


def test_a_call_that_did_not_parse_is_kept_whole() -> None:
    attempt = ToolCall(id="c", raw='{"name": ', status=ParseStatus.CUT, error="cut")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(attempt), type=ToolCall) == attempt
    assert (attempt.name, attempt.arguments) == (None, None)
