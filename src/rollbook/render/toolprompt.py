"""Tools for a model whose template has no place for them: an explicit text in the system message, recorded by name
and hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollbook.errors import ConfigError
from rollbook.trace.message import Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["HERMES_EXAMPLES", "ToolPrompt"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolPrompt:
    """How tools, calls and results are spelled for a template that knows none. All of it is content."""

    name: str
    text: str
    """Goes behind the system message's own text. ``{tools}`` in it stands for the tools, one JSON object a line."""
    result_role: Role = Role.TOOL
    """The role under which results go to the template: tool or user."""
    result_open: str = ""
    """Text before a result, e.g. ``<tool_response>`` and a line end."""
    result_close: str = ""
    """Text behind a result."""

    def __post_init__(self) -> None:
        if "{tools}" not in self.text:
            raise ConfigError(f"tool prompt {self.name!r}: its text has no {{tools}} to put the tools in")
        if self.result_role not in (Role.TOOL, Role.USER):
            raise ConfigError(f"tool prompt {self.name!r}: results go as role tool or user, not {self.result_role}")

    @property
    def label(self) -> str:
        """Name and hash of all fields, for the record: ``name@0123456789ab``."""
        fields = [self.name, self.text, self.result_role, self.result_open, self.result_close]
        return f"{self.name}@{hashlib.sha256(json.dumps(fields).encode()).hexdigest()[:12]}"

    def system_text(self, tools: Sequence[ToolSpec], given: str | None) -> str:
        """The system message's text; `given` is its own text, None where there is no system message."""
        lines = "\n".join(_dump(tool.openai()["function"]) for tool in tools)
        text = self.text.replace("{tools}", lines)
        return f"{given}\n\n{text}" if given else text

    def result_text(self, text: str) -> str:
        """The text of a tool result as the model sees it."""
        return f"{self.result_open}{text}{self.result_close}"

    def call_text(self, call: ToolCall) -> str:
        """A call of the given history as the model would have written it: exactly, where its raw text is known."""
        body = call.raw or f"\n{_dump({'name': call.name, 'arguments': call.arguments})}\n"
        return f"<tool_call>{body}</tool_call>"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


HERMES_EXAMPLES = ToolPrompt(
    name="hermes-examples",
    text="""You can call tools. These are the tools:
<tools>
{tools}
</tools>

To call a tool, write a JSON object with its name and arguments between <tool_call> and </tool_call>, and stop.
For example:
<tool_call>
{"name": "add", "arguments": {"a": 2, "b": 3}}
</tool_call>
The result comes in the next message. When you know the answer, write it without a tool call.""",
    result_role=Role.USER,
    result_open="<tool_response>\n",
    result_close="\n</tool_response>",
)
"""Hermes JSON calls with a worked example, for small ChatML models whose template has no tools (SmolLM2)."""
