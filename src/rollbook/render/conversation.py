"""Messages in the form that chat templates read, with a tag of its own for the content of each.

What a template would leave out in silence is an error here or in `increments`: a call that did not parse, and calls
that the template has no place for. Text is all that a message may hold: images and other blocks are refused.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any, cast

from rollbook.errors import ModelError
from rollbook.render.toolprompt import ToolPrompt
from rollbook.render.tracked import CONTENT, Tracked, call_tag, message_tag, scaffold
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["Chat", "TemplateMessage", "call_entry", "did_not_parse", "message_text", "whole_call"]

TemplateMessage = dict[str, Any]
"""One entry of a template's ``messages``."""

_ROLES = {role: scaffold(role.value) for role in Role}


@dataclasses.dataclass(frozen=True, slots=True)
class Chat:
    """How messages and tools are put to one template."""

    tool_prompt: ToolPrompt | None
    renders_calls: bool
    """True where the template writes the ``tool_calls`` of an assistant message."""
    arguments_as_text: bool = False
    """True where the template wants a call's arguments as JSON text, not as an object."""
    silent_calls: bool = False
    """True where a turn with calls and no text must have no content at all (None), not an empty one."""

    def with_tools(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
        """The start of a conversation, with the tool prompt in its system message where there are tools to tell
        of."""
        if self.tool_prompt is None or not tools:
            return tuple(messages)
        return self.tool_prompt.opening(messages, tools)

    def entries(self, messages: Sequence[Message]) -> list[TemplateMessage]:
        """Entries for the template; the content of message i is tagged ``message_tag(i)``."""
        return [self._entry(message, index) for index, message in enumerate(messages)]

    def _entry(self, message: Message, index: int) -> TemplateMessage:
        role, text, tag = message.role, message_text(message), message_tag(index)
        spelled = None if self.tool_prompt is None or self.tool_prompt.native else self.tool_prompt
        calls = [whole_call(call) for call in message.tool_calls]
        if role is Role.TOOL and spelled is not None:
            role, text = spelled.result_role, spelled.result_text(text)
        if calls and spelled is not None:
            text = "\n".join([*([text] if text else []), *map(spelled.call_text, calls)])
            calls = []
        if calls and not self.renders_calls:
            raise ModelError("the chat template has no place for tool calls in given messages; pass a tool prompt")
        entry: TemplateMessage = {"role": _ROLES[role], "content": Tracked(text, tag * len(text))}
        if message.reasoning is not None:
            reasoning = _text(message.reasoning, message.role)
            entry["reasoning_content"] = Tracked(reasoning, tag * len(reasoning))
        if calls:
            entry["content"] = None if self.silent_calls and not text else entry["content"]
            as_text, tag = self.arguments_as_text, call_tag(index)
            entry["tool_calls"] = [
                call_entry(call.id, call.name, call.arguments, tag=tag, as_text=as_text) for call in calls
            ]
        if role is Role.TOOL:
            entry |= {"tool_call_id": message.call_id, "name": message.name}
        return entry


def message_text(message: Message) -> str:
    """The message's content. A `Message` made in Python may hold anything; nothing of it is dropped."""
    return _text(message.content, message.role)


def _text(content: object, role: Role) -> str:
    if isinstance(content, str):
        return content
    what = type(content).__name__
    if isinstance(content, list) and content:
        what = f"blocks ({', '.join(sorted(set(map(_kind, cast('list[Any]', content)))))})"
    raise ModelError(
        f"a {role} message holds {what} instead of text; images and other blocks are not supported yet, and "
        "nothing is dropped: give the message as one string"
    )


def _kind(block: Any) -> str:
    kind = type(block).__name__
    return str(cast("dict[str, Any]", block).get("type", kind)) if isinstance(block, dict) else kind


def whole_call(call: ToolCall) -> ToolCall:
    """`call`, which must have parsed. Raises `ModelError`."""
    if call.status is not ParseStatus.OK or call.name is None or call.arguments is None:
        raise did_not_parse(call)
    return call


def did_not_parse(call: ToolCall) -> ModelError:
    """The error for a call that cannot be written as one."""
    return ModelError(
        f"tool call {call.id!r} did not parse ({call.status}); give such a message as text, not as a call"
    )


def call_entry(
    call_id: str | None,
    name: str | None,
    arguments: dict[str, Any] | None,
    *,
    tag: str = CONTENT,
    as_text: bool = False,
) -> dict[str, Any]:
    """A tool call as templates read it (the OpenAI form); `tag` marks its name, so that it can be found again."""
    named = None if name is None else Tracked(name, tag * len(name))
    given = json.dumps(arguments, ensure_ascii=False) if as_text else arguments
    return {"id": call_id, "type": "function", "function": {"name": named, "arguments": given}}
