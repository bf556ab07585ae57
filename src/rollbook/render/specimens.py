"""The conversations that a template is tried on, and those that many templates refuse."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import cast

from rollbook.render.conversation import TemplateMessage, call_entry
from rollbook.render.increments import Shape
from rollbook.render.tracked import Tracked, call_tag, message_tag, scaffold
from rollbook.trace.tools import ToolSpec

__all__ = [
    "CALLS",
    "CALL_ID",
    "NATIVE_IDS",
    "PARALLEL",
    "PLAIN",
    "PLAIN_SHAPE",
    "SHAPES",
    "SYSTEM_TEXT",
    "TOOL",
    "TRIALS",
    "WORDS",
    "Cause",
    "Trial",
    "say",
    "tagged",
]

TOOL = ToolSpec(
    name="lookup",
    description="Looks a word up.",
    parameters={"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]},
)
CALL_ID = "lookup001"
_IDS = (CALL_ID, "lookup002")
"""Nine letters and digits, the only form that every template takes."""
PLAIN_SHAPE = Shape()
NATIVE_IDS = ("functions.lookup:0", "functions.lookup:1")
"""Ids as Kimi writes them."""
WORDS = ("book", "roll")
"""What is looked up."""


class Cause(StrEnum):
    """What a conversation must have for a template to write it otherwise."""

    SYSTEM = "system"
    """A system message."""
    CALLS = "calls"
    """Calls and their results."""
    ROUNDS = "rounds"
    """Calls behind earlier turns."""
    PARALLEL = "parallel"
    """Several calls in one turn."""
    REASONING = "reasoning"
    """Reasoning in an earlier turn."""
    TOOLS = "tools"
    """Tools; no conversation is special for them, each is tried with and without."""
    OTHER = "other"
    """Nothing that is known."""


@dataclass(frozen=True, slots=True)
class Trial:
    """One conversation, and what is special about it."""

    name: str
    entries: list[TemplateMessage]
    special: Cause | None = None
    """What sets it apart from the trials before it."""


def say(role: str, text: str, **more: object) -> TemplateMessage:
    """One entry."""
    return {"role": scaffold(role), "content": text, **more}


def tagged(
    entries: list[TemplateMessage], shape: Shape = PLAIN_SHAPE, ids: tuple[str, str] = _IDS
) -> list[TemplateMessage]:
    """`entries` with the tags of their places, in the form of `shape`, their calls with `ids`."""
    return [_tagged(entry, place, shape, ids) for place, entry in enumerate(entries)]


def _tagged(entry: TemplateMessage, place: int, shape: Shape, ids: tuple[str, str]) -> TemplateMessage:
    text, tag = entry["content"], message_tag(place)
    silent = shape.silent_calls and "tool_calls" in entry and not text
    made: TemplateMessage = {**entry, "content": None if silent else Tracked(text, tag * len(text))}
    if "reasoning_content" in entry:
        made["reasoning_content"] = Tracked(entry["reasoning_content"], tag * len(entry["reasoning_content"]))
    if "tool_calls" in entry:
        made["tool_calls"] = [
            call_entry(ids[n], "lookup", {"word": WORDS[n]}, tag=call_tag(place), as_text=shape.arguments_as_text)
            for n in cast("list[int]", entry["tool_calls"])
        ]
    return made


def _result(n: int, text: str) -> TemplateMessage:
    return say("tool", text, tool_call_id=_IDS[n], name="lookup")


def _calls(text: str, *numbers: int, **more: object) -> TemplateMessage:
    return say("assistant", text, tool_calls=list(numbers), **more)


PLAIN = [say("user", "First, and with care."), say("assistant", "Done one."), say("user", "Now the second.")]
CALLS = [PLAIN[0], _calls("", 0), _result(0, "found it")]
PARALLEL = [PLAIN[0], _calls("", 0, 1), _result(0, "found it"), _result(1, "lost it")]
_MORE = [say("assistant", "Done two."), say("user", "And the third.")]
SYSTEM_TEXT = "Be brief."
_SYSTEM = say("system", SYSTEM_TEXT)

TRIALS = (
    Trial("plain", PLAIN),
    Trial("longer", [*PLAIN, *_MORE]),
    Trial("system", [_SYSTEM, *PLAIN, *_MORE], Cause.SYSTEM),
    Trial("calls", [*CALLS, say("assistant", "That is all."), say("user", "Thanks, one more.")], Cause.CALLS),
    Trial("calls with text", [PLAIN[0], _calls("Looking.", 0), _result(0, "found it")], Cause.CALLS),
    Trial("parallel calls", [*PARALLEL, say("assistant", "That is all."), say("user", "One more.")], Cause.PARALLEL),
    Trial("rounds", [*CALLS, _calls("", 1), _result(1, "lost it"), *_MORE], Cause.ROUNDS),
    Trial("calls after talk", [*PLAIN, *CALLS[1:]], Cause.ROUNDS),
    Trial("reasoning", [PLAIN[0], say("assistant", "Done.", reasoning_content="I think."), PLAIN[2]], Cause.REASONING),
    Trial(
        "reasoning in the text",
        [PLAIN[0], say("assistant", "<think>\nHm.\n</think>\n\nDone."), PLAIN[2]],
        Cause.REASONING,
    ),
    Trial(
        "reasoning about calls",
        [*CALLS[:1], _calls("", 0, reasoning_content="I think."), *CALLS[2:], *_MORE],
        Cause.REASONING,
    ),
)

_SPOKEN = [PLAIN[0], say("assistant", "Look up: book."), _result(0, "found it")]
SPOKEN_TRIALS = (
    Trial("results of spoken calls", [*_SPOKEN, say("assistant", "That is all."), PLAIN[2]], Cause.CALLS),
    Trial(
        "rounds of them", [*_SPOKEN, say("assistant", "Look up: roll."), _result(1, "lost it"), *_MORE], Cause.ROUNDS
    ),
)
"""For templates without a place for calls, which an explicit tool prompt has the model write as text."""

SHAPES = (
    ("no system message", PLAIN),
    ("a system message", [_SYSTEM, *PLAIN]),
    ("two user messages in a row", [PLAIN[0], PLAIN[2]]),
    ("a tool result", CALLS),
    ("parallel calls", PARALLEL),
    ("a user message after a tool result", [*CALLS, PLAIN[2]]),
    ("a system message later on", [*PLAIN[:2], _SYSTEM, PLAIN[2]]),
)
