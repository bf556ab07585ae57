"""Foreign chat messages as ours: the fields of OpenAI's chat format, which most records share.

Rules: text stays as it is, and content in parts is the text of its text parts, in order, joined by nothing where the
form does not say otherwise (pictures and sound have no text and are counted by the caller's form); arguments of a tool
call that come as text are parsed and never repaired, so a call that is no JSON object is kept with its status, also
where the recorder ran it; what a call looked like when it was sampled is known only where its arguments are text.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, cast

import msgspec

from rollbook.export.importers.rows import BadRow, as_record
from rollbook.trace.message import Message, Origin, ParseStatus, Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["ChatMessage", "Content", "chat_message", "origin_of", "text_of", "tool_call", "tool_specs"]

Content = str | list[Any] | None
"""Text, or parts each with a ``type``."""

_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
    "tool": Role.TOOL,
}
_ORIGINS = {
    Role.SYSTEM: Origin.HARNESS,
    Role.USER: Origin.USER,
    Role.ASSISTANT: Origin.HARNESS,
    Role.TOOL: Origin.ENVIRONMENT,
}


class ChatMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message of the chat format."""

    role: str
    content: Content = None
    reasoning_content: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class _Function(msgspec.Struct, frozen=True, kw_only=True):
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


class _Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call, nested as OpenAI has it or flat."""

    id: str | None = None
    function: _Function | str | None = None
    name: str | None = None
    arguments: str | dict[str, Any] | None = None


def chat_message(plain: Any) -> Message:
    """One message; raises `BadRow` for an unknown role or another shape."""
    try:
        said = as_record(plain, ChatMessage)
        calls = [as_record(_parsed(call), _Call) for call in said.tool_calls or ()]
    except BadRow as error:
        raise BadRow(f"a message is none of the chat format: {error}") from error
    role = _ROLES.get(said.role)
    if role is None:
        raise BadRow(f"a message has the role {said.role[:40]!a}, which is none of {', '.join(_ROLES)}")
    return Message(
        role=role,
        content=text_of(said.content),
        reasoning=said.reasoning_content,
        tool_calls=tuple(_tool_call(call, place) for place, call in enumerate(calls)),
        call_id=said.tool_call_id,
        name=said.name,
    )


def origin_of(role: Role, *, sampled: bool) -> Origin:
    """Who made a message of which only the role is known, and whether the policy sampled it."""
    return Origin.POLICY if sampled else _ORIGINS[role]


def text_of(content: Content, between: str = "") -> str:
    """The text of content; parts without text are left out."""
    if content is None or isinstance(content, str):
        return content or ""
    texts: list[str] = []
    for part in content:
        text: Any = cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else part
        if isinstance(text, str):
            texts.append(text)
    return between.join(texts)


def tool_call(id_: str, name: str | None, arguments: str | dict[str, Any] | None) -> ToolCall:
    """One call as it was recorded."""
    if isinstance(arguments, dict):
        return ToolCall(id=id_, name=name, arguments=arguments)
    raw = arguments or ""
    try:
        parsed: Any = json.loads(raw)
    except (ValueError, RecursionError) as error:
        return ToolCall(id=id_, name=name, raw=raw, status=ParseStatus.INVALID_JSON, error=str(error))
    if not isinstance(parsed, dict):
        return ToolCall(id=id_, name=name, raw=raw, status=ParseStatus.NOT_AN_OBJECT, error="not a JSON object")
    status = ParseStatus.OK if name else ParseStatus.MISSING_NAME
    return ToolCall(id=id_, name=name, arguments=cast("dict[str, Any]", parsed), raw=raw, status=status)


def tool_specs(plain: Sequence[Any] | None) -> tuple[ToolSpec, ...]:
    """Tools as they were offered, nested under ``function`` or flat; raises `BadRow`."""
    found: list[ToolSpec] = []
    for each in plain or ():
        fields = cast("dict[str, Any]", each) if isinstance(each, dict) else {}
        inner: Any = fields.get("function", fields)
        try:
            tool = as_record(inner, _Tool)
        except BadRow as error:
            raise BadRow(f"a tool is none of the chat format: {error}") from error
        found.append(ToolSpec(name=tool.name, description=tool.description or "", parameters=tool.parameters or {}))
    return tuple(found)


class _Tool(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None


def _parsed(call: Any) -> Any:
    """Some recorders keep each call as a JSON text."""
    if not isinstance(call, str):
        return call
    try:
        return json.loads(call)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"a tool call is no JSON ({error})") from error


def _tool_call(call: _Call, place: int) -> ToolCall:
    nested = call.function if isinstance(call.function, _Function) else None
    name = nested.name if nested else call.function if isinstance(call.function, str) else call.name
    return tool_call(call.id or f"call-{place}", name, nested.arguments if nested else call.arguments)
