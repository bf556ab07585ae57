"""One rollout as a conversation to imitate: the messages of the branch that it ended on, in the chat format.

Rules: a conversation says what was said, or it is not given: one with a redacted, rejected or demoted turn, with a call
that is not well-formed (the chat format has no place for it), or with a turn whose text nobody knows has no
conversation, and the reason is told. Arguments of calls are mappings, as chat templates expect them; a call that was
written inside of reasoning stays there and is no call. Reasoning stands as ``reasoning_content``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from rollbook.trace.message import Message, Origin, ParseStatus, Role
from rollbook.trace.node import ROOT
from rollbook.trace.trace import Trace

__all__ = ["Conversation", "NoConversation", "conversation"]


class NoConversation(Exception):
    """Why a rollout has no conversation, as a name for the report."""


@dataclass(frozen=True, slots=True)
class Conversation:
    """What was said, up to the policy's last turn."""

    messages: list[dict[str, Any]]
    """In the chat format."""
    first: int
    """Where the policy's first turn stands among them."""
    turns: int
    """How many of them the policy made."""
    foreign: int
    """How many replies are somebody else's."""


def conversation(trace: Trace) -> Conversation:
    """The conversation of the branch that the rollout ended on; raises `NoConversation`."""
    leaf = len(trace.graph) - 1
    path: list[int] = trace.graph.path(leaf).tolist() if leaf != ROOT else []
    turns = [node for node in path if _is_turn(trace, node)]
    if not turns:
        raise NoConversation("no_turn")
    for node in path:
        if (mark := trace.graph.marks.get(node)) is not None:
            raise NoConversation(str(mark))
    said = [trace.graph.messages[node] for node in path[: path.index(turns[-1]) + 1]]
    if any(call.status not in _SAID for message in said for call in message.tool_calls):
        raise NoConversation("faulty_call")
    if not all(_has_text(trace.graph.messages[node]) for node in turns):
        raise NoConversation("no_text")
    return Conversation(
        messages=[_chat(message) for message in said],
        first=path.index(turns[0]),
        turns=len(turns),
        foreign=sum(message.role is Role.ASSISTANT for message in said) - len(turns),
    )


_SAID = (ParseStatus.OK, ParseStatus.INSIDE_REASONING)


def _is_turn(trace: Trace, node: int) -> bool:
    return trace.graph.origin(node) is Origin.POLICY


def _has_text(message: Message) -> bool:
    return bool(message.content or message.reasoning or message.tool_calls)


def _chat(message: Message) -> dict[str, Any]:
    plain: dict[str, Any] = {"role": str(message.role), "content": message.content}
    if message.reasoning is not None:
        plain["reasoning_content"] = message.reasoning
    calls = [call for call in message.tool_calls if call.status is ParseStatus.OK]
    if calls:
        plain["tool_calls"] = [
            {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments or {}}}
            for call in calls
        ]
    if message.role is Role.TOOL:
        plain["tool_call_id"] = message.call_id or ""
        if message.name is not None:
            plain["name"] = message.name
    return plain
