"""What a tool looks like to the model.

Rule: this is all that a trace keeps of a tool, so a stored trace needs no tool code to be read or rendered again.
"""

from __future__ import annotations

from typing import Any

import msgspec

__all__ = ["ToolSpec"]


class ToolSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A tool as it is offered to the model."""

    name: str
    description: str
    parameters: dict[str, Any]
    """JSON schema (draft 2020-12) of the arguments, always of type ``object``."""
    stop: bool = False
    """True for a tool whose call ends the attempt (`stop_tool`)."""

    def openai(self) -> dict[str, Any]:
        """The form that chat templates expect in their ``tools`` variable (OpenAI function tools)."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}
