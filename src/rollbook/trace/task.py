"""A task: what an agent is asked to do.

Rule: a task is plain, immutable data, so it crosses processes and files unchanged, and the same id means the same task
in every run.
"""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.trace.message import Message, Role

__all__ = ["Task"]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One row of an environment's data."""

    id: str
    """Unique within its environment; the same task has the same id in every run."""
    prompt: str | tuple[Message, ...]
    """The first observation: a text stands for one user message."""
    target: Any = None
    """What the scorer compares with (plain JSON data); None where there is none."""
    data: dict[str, Any] = {}
    """Anything else that the environment needs (plain JSON data)."""

    def messages(self) -> tuple[Message, ...]:
        """The first observation as messages."""
        if isinstance(self.prompt, str):
            return (Message(role=Role.USER, content=self.prompt),)
        return self.prompt
