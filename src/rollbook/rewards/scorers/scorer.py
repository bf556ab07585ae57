"""What a scorer is, and what all of them read: the answer of an attempt, and what it is compared with.

A scorer is an async function of one ended trace. It returns a number, a `Rewards` with parts, or None where it says
nothing; what it raises leaves the scoring ``failed``, with no reward. So a scorer that cannot tell raises: it never
returns 0 for what it does not know.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from rollbook.envs.protocol import Rewards
from rollbook.errors import RollbookError
from rollbook.trace.trace import Trace

__all__ = ["Answer", "Scorer", "ScoringFailed", "Target", "answer_text", "target_text"]

Answer = Callable[[Trace], str]
"""Reads what is judged out of a trace."""
Target = str | Callable[[Trace], Any] | None
"""What is right: a text, a function that finds it in the trace, or None for the task's own target."""


class ScoringFailed(RollbookError):
    """The scorer cannot tell what an attempt is worth; the scoring fails, and there is no reward."""


class Scorer(Protocol):
    """Scores one ended trace, from its record alone."""

    async def __call__(self, trace: Trace, /) -> float | Rewards | None:
        """The reward; None: it says nothing. Raises `ScoringFailed` where it cannot tell."""
        ...


def answer_text(trace: Trace) -> str:
    """What the policy answered: the text of its last message, without the white space around it; empty where that
    message calls a tool, or there is none."""
    answer = trace.answer
    return answer.content.strip() if answer is not None and not answer.tool_calls else ""


def target_text(trace: Trace, target: Target) -> str:
    """What is right, as text without the white space around it. Raises `ScoringFailed` where there is none: nothing
    could be wrong then."""
    found = target if isinstance(target, str) else trace.task.target if target is None else target(trace)
    text = "" if found is None else str(found).strip()
    if not text:
        raise ScoringFailed(f"task {trace.task.id} has no target to compare an answer with")
    return text
