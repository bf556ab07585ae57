"""Tools for a model whose template has no place for them: an explicit prompt, visible in the record, by name and
hash.

It adds text to the system message and, where it has worked examples for a tool that is offered, plays them as turns
behind it: a small model that makes no call from a description alone makes most of them after it has seen a few as
turns.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any

import msgspec

from rollbook.errors import ConfigError
from rollbook.trace.message import Message, Role, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = ["HERMES_EXAMPLES", "NATIVE_TOOLS", "Example", "ToolPrompt"]


class Example(msgspec.Struct, frozen=True, kw_only=True):
    """One worked example: a question, a call, its result and the answer, each a message of its own."""

    question: str
    tool: str
    """The tool's name; the example is played only where a tool of that name is offered."""
    arguments: dict[str, Any]
    result: str
    answer: str

    def messages(self, call_id: str) -> tuple[Message, ...]:
        """The four messages."""
        call = ToolCall(id=call_id, name=self.tool, arguments=self.arguments)
        return (
            Message(role=Role.USER, content=self.question),
            Message(role=Role.ASSISTANT, tool_calls=(call,)),
            Message(role=Role.TOOL, content=self.result, call_id=call_id, name=self.tool),
            Message(role=Role.ASSISTANT, content=self.answer),
        )


class ToolPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """How tools are told, and calls and results spelled, for a template that has no place for them. All of it is
    content."""

    name: str
    text: str
    """Goes behind the system message's own text. ``{tools}`` in it stands for the tools as JSON, one a line;
    ``{signatures}`` for lines such as ``add(a: integer, b: integer): Adds two numbers.``
    """
    examples: tuple[Example, ...] = ()
    """Played as turns behind the system message."""
    native: bool = False
    """True: the prompt only tells of the tools; calls and results are the template's to write, in its own form, and
    replies are read in that form (DeepSeek)."""
    result_role: Role = Role.TOOL
    """The role under which results go to the template: tool or user."""
    result_open: str = ""
    """Text before a result, e.g. ``<tool_response>`` and a line end."""
    result_close: str = ""
    """Text behind a result."""

    def __post_init__(self) -> None:
        if "{tools}" not in self.text and "{signatures}" not in self.text:
            raise ConfigError(f"tool prompt {self.name!r}: its text has neither {{tools}} nor {{signatures}}")
        if self.native and (self.result_open or self.result_close or self.result_role is not Role.TOOL):
            raise ConfigError(f"tool prompt {self.name!r}: a native one leaves results to the template")
        if self.result_role not in (Role.TOOL, Role.USER):
            raise ConfigError(f"tool prompt {self.name!r}: results go as role tool or user, not {self.result_role}")

    @property
    def label(self) -> str:
        """Name and hash of all fields, for the record: ``name@0123456789ab``."""
        return f"{self.name}@{hashlib.sha256(msgspec.json.encode(self, order='sorted')).hexdigest()[:12]}"

    def opening(self, messages: Sequence[Message], tools: Sequence[ToolSpec]) -> tuple[Message, ...]:
        """`messages` with the prompt: text in the system message (a new one where there is none), then the
        examples."""
        given = messages[0] if messages and messages[0].role is Role.SYSTEM else None
        text = self._system_text(tools)
        if given is None:
            system = Message(role=Role.SYSTEM, content=text)
        else:
            system = msgspec.structs.replace(given, content=f"{given.content}\n\n{text}" if given.content else text)
        offered = {tool.name for tool in tools}
        played = [example for example in self.examples if example.tool in offered]
        shown = [message for n, example in enumerate(played) for message in example.messages(f"example_{n}")]
        return (system, *shown, *messages[0 if given is None else 1 :])

    def _system_text(self, tools: Sequence[ToolSpec]) -> str:
        parts = {
            "{tools}": "\n".join(_dump(tool.openai()["function"]) for tool in tools),
            "{signatures}": "\n".join(map(_signature, tools)),
        }
        first, *rest = self.text.split("{tools}")
        joined = [first.replace("{signatures}", parts["{signatures}"])]
        joined += [part.replace("{signatures}", parts["{signatures}"]) for part in rest]
        return parts["{tools}"].join(joined)

    def result_text(self, text: str) -> str:
        """The text of a tool result as the model sees it."""
        return f"{self.result_open}{text}{self.result_close}"

    def call_text(self, call: ToolCall) -> str:
        """A call of the given history as the model would have written it: exactly, where its raw text is known."""
        body = call.raw or f"\n{_dump({'name': call.name, 'arguments': call.arguments})}\n"
        return f"<tool_call>{body}</tool_call>"


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _signature(tool: ToolSpec) -> str:
    properties: dict[str, Any] = tool.parameters.get("properties", {})
    required: list[str] = tool.parameters.get("required", [])
    shown = [f"{name}{'' if name in required else '?'}: {_type(schema)}" for name, schema in properties.items()]
    return f"{tool.name}({', '.join(shown)}): {tool.description}"


def _type(schema: Any) -> str:
    match schema:
        case {"type": str(name)}:
            return name
        case _:
            return "any"


def _calculator(expression: str, result: str) -> Example:
    return Example(
        question=f"Compute {expression}",
        tool="calculator",
        arguments={"expression": expression},
        result=result,
        answer=f"The answer is {result}.",
    )


HERMES_EXAMPLES = ToolPrompt(
    name="hermes-examples",
    text="""You answer with the help of tools. To use a tool, reply with exactly:
<tool_call>
{"name": NAME, "arguments": {...}}
</tool_call>

Tools:
{signatures}""",
    examples=(
        _calculator("17*23", "391"),
        _calculator("45+12", "57"),
        _calculator("81-36", "45"),
        _calculator("6*14", "84"),
    ),
)
"""Hermes JSON calls for small ChatML models whose template has no tools (SmolLM2-135M-Instruct). With these four
turns it makes a well-formed calculator call in about 17 of 24 tries at temperature 1, and in none without them."""

NATIVE_TOOLS = ToolPrompt(
    name="native-tools",
    text="""You answer with the help of tools. To use one, make a tool call; its result comes back to you.

Tools:
{tools}""",
    examples=(_calculator("17*23", "391"),),
    native=True,
)
"""For templates that write tool calls in a form of their own but have no place for the tools (DeepSeek V3, V3.1, R1).
One example, for some of these templates write only the first round of calls as they should."""
