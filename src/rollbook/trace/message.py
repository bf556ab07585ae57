"""Messages: what a person reads of a turn. Token ids live beside them, in the graph.

Identity of a message is what it says, not how it is spelled: two tool calls with the same arguments in another key
order are the same message, two with other reasoning are not (`message_key`).
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from typing import Any, cast

import msgspec

__all__ = ["Fault", "Message", "Origin", "ParseStatus", "Role", "ToolCall", "message_key"]


class Role(StrEnum):
    """Who speaks in the template's eyes."""

    SYSTEM = "system"
    """Instructions."""
    USER = "user"
    """The user, or an environment that speaks as one."""
    ASSISTANT = "assistant"
    """The model."""
    TOOL = "tool"
    """The result of a tool call."""


class Origin(StrEnum):
    """Who made a message."""

    POLICY = "policy"
    """Sampled from a policy."""
    ENVIRONMENT = "environment"
    """The environment: observations and tool results."""
    USER = "user"
    """A user or user simulator."""
    HARNESS = "harness"
    """The program that drives the model."""
    SUBAGENT = "subagent"
    """A subagent's report."""
    SYNTHETIC = "synthetic"
    """Made by Rollbook itself; never trained."""


class ParseStatus(StrEnum):
    """What strict parsing made of one attempted tool call; only `OK` calls execute."""

    OK = "ok"
    """Well-formed, known tool, arguments fit its schema."""
    INVALID_JSON = "invalid_json"
    """The body is not JSON, or, in a family that does not write JSON, not in the family's form."""
    NOT_AN_OBJECT = "not_an_object"
    """The body is JSON but not an object, or its arguments are not."""
    UNCLOSED = "unclosed"
    """The call was opened and never closed, though the turn ended normally."""
    UNKNOWN_TOOL = "unknown_tool"
    """No tool of that name was offered."""
    MISSING_NAME = "missing_name"
    """The body names no tool."""
    BAD_ARGUMENTS = "bad_arguments"
    """The arguments do not fit the tool's schema."""
    INSIDE_REASONING = "inside_reasoning"
    """Written inside reasoning: counted, and nothing more."""
    CUT = "cut"
    """The generation limit cut the call."""


class Fault(StrEnum):
    """Whose fault a failed tool call was."""

    POLICY = "policy"
    """Bad arguments or a malformed call."""
    ENVIRONMENT = "environment"
    """The tool broke."""
    UNKNOWN = "unknown"
    """Cannot be told."""


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One attempted tool call, also a bad one."""

    id: str
    """Names the call within its trace; a tool result refers to it."""
    name: str | None = None
    """The tool's name; None where the attempt gives none."""
    arguments: dict[str, Any] | None = None
    """Parsed arguments; None where they could not be parsed. Never repaired."""
    raw: str = ""
    """The attempt exactly as it was sampled, markers left out."""
    status: ParseStatus = ParseStatus.OK
    error: str | None = None
    """Why the status is not `ok`, for the policy and for people."""


class Message(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One message of a conversation. Text may hold any code point, lone surrogates included."""

    role: Role
    content: str = ""
    reasoning: str | None = None
    """Text inside the reasoning block; None where there was no block."""
    tool_calls: tuple[ToolCall, ...] = ()
    """Attempted calls in the order of the text."""
    call_id: str | None = None
    """For a tool result: the call that it answers."""
    name: str | None = None
    """For a tool result: the tool's name."""
    fault: Fault | None = None
    """For a tool result: whose fault a failure was; None where it did not fail."""
    value_type: str | None = None
    """For what an environment returned (a tool's result, a step's observation): its Python type, before the one
    conversion to text."""
    raw: bytes | None = None
    """The exact bytes behind `content` where they are not valid UTF-8 (a cut character, a binary result)."""


def message_key(message: Message) -> bytes:
    """16 bytes that are equal exactly where two messages say the same: role, text, reasoning, calls, answered call.

    Arguments are compared as JSON values with the order of keys ignored; a call that did not parse is compared by
    its raw text. Ids of calls are left out, for harnesses invent them anew.
    """
    calls = [
        [call.name, call.arguments] if call.arguments is not None else [call.name, call.raw, call.status]
        for call in message.tool_calls
    ]
    said = [message.role, message.content, message.reasoning, calls, message.raw]
    return hashlib.blake2b(canonical_bytes(said), digest_size=16).digest()


def canonical_bytes(value: Any) -> bytes:
    """The same bytes for the same value: MessagePack with sorted keys, or Python's spelling where a lone surrogate or
    a number beyond 64 bits has no place there."""
    try:
        return msgspec.msgpack.encode(value, order="sorted")
    except (UnicodeEncodeError, OverflowError):
        return repr(_sorted_keys(msgspec.to_builtins(value))).encode("utf-8", "surrogatepass")


def _sorted_keys(value: Any) -> Any:
    match value:
        case dict():
            items = cast("dict[str, Any]", value)
            return [(key, _sorted_keys(items[key])) for key in sorted(items)]
        case list() | tuple():
            return [_sorted_keys(item) for item in cast("list[Any]", value)]
        case _:
            return value
