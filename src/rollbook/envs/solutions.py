"""Solutions of a task: what a perfect agent would reply, and what one that does nothing would.

They are replayed through the real tools and the real scorer (`rollbook.check_env`): the gold one must score 1, the
no-op 0. A solution is a list of replies, the first one answering the first observation; where the environment goes on
behind the last of them, the attempt ends there, as at a limit of turns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollbook.trace.message import Message, Role, ToolCall

__all__ = ["Solutions", "calls", "says"]


def says(text: str) -> Message:
    """A reply of plain text."""
    return Message(role=Role.ASSISTANT, content=text)


def calls(tool: str, /, **arguments: Any) -> Message:
    """A reply that calls one tool."""
    return Message(role=Role.ASSISTANT, tool_calls=(ToolCall(id="", name=tool, arguments=arguments),))


@dataclass(frozen=True, slots=True)
class Solutions:
    """The solutions of one task, each as the assistant's replies in order."""

    gold: Sequence[Message]
    """Solves the task: must score 1."""
    noop: Sequence[Message] = (says(""),)
    """Does nothing of use: must score 0."""
