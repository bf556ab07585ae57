"""A reply that was read, as a message: one way for every family, so that no bytes are lost in any."""

from __future__ import annotations

from collections.abc import Iterable

from rollbook.render.vocabulary import show_bytes
from rollbook.trace.message import Message, Role, ToolCall

__all__ = ["reply_message"]


def reply_message(content: bytes, reasoning: bytes | None, calls: Iterable[ToolCall]) -> Message:
    """The assistant's message. `raw` holds the content's bytes where they are not UTF-8."""
    text = show_bytes(content)
    return Message(
        role=Role.ASSISTANT,
        content=text,
        reasoning=None if reasoning is None else show_bytes(reasoning),
        tool_calls=tuple(calls),
        raw=None if "\ufffd" not in text or text.encode() == content else content,
    )
