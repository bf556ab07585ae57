"""What a tool call came to, and the error observations that stand in for calls which did not run."""

from __future__ import annotations

from dataclasses import dataclass

from rollbook.envs.foreign import one_line
from rollbook.errors import RecordError, RollbookError
from rollbook.trace.ending import Ending
from rollbook.trace.message import Fault, Message, ParseStatus, Role, ToolCall

__all__ = ["ToolOutcome", "ToolRefused", "error_observation", "failed"]


class ToolRefused(RollbookError):
    """Raised by a tool: the arguments are well-formed, but what they ask cannot be done. The policy sees the text,
    and the fault is its own."""


@dataclass(frozen=True, slots=True)
class ToolOutcome:
    """What one call came to."""

    message: Message
    """The result or the error, as the policy sees it: role ``tool``."""
    reward: float | None = None
    """A step reward; None: none."""
    ending: Ending | None = None
    """The ending that the tool caused or saw; None: go on."""
    seconds: float = 0.0
    """Wall time of the function; 0 where it did not run."""


def failed(call: ToolCall, problem: str, fault: Fault) -> Message:
    """The observation of a failure: one bounded line that begins with ``error: ``."""
    content = f"error: {one_line(problem)}"
    return Message(role=Role.TOOL, content=content, call_id=call.id, name=call.name, fault=fault)


def error_observation(call: ToolCall) -> Message:
    """What the policy sees next turn of a call that did not parse: its status and why.

    Raises `RecordError` for a call that is ``ok``, and for one inside reasoning: those are counted and get no answer.
    """
    if call.status in (ParseStatus.OK, ParseStatus.INSIDE_REASONING):
        raise RecordError(f"a call with status {call.status} has no error observation")
    problem = f"{call.status}: {call.error}" if call.error else str(call.status)
    return failed(call, problem, Fault.POLICY)
