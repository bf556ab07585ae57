"""Exact match."""

from __future__ import annotations

from rollbook.rewards.scorers.scorer import Answer, Scorer, Target, answer_text, target_text
from rollbook.trace.trace import Trace

__all__ = ["exact"]


def exact(target: Target = None, *, answer: Answer = answer_text, fold: bool = False) -> Scorer:
    """1 where the answer is the target, character by character, and 0 elsewhere. White space around either does not
    count; with `fold`, neither does case, and white space within counts as one space.

    `target`: None for the task's own. `answer`: reads the answer out of the trace.
    """

    async def score(trace: Trace, /) -> float:
        right, said = target_text(trace, target), answer(trace).strip()
        return float(_folded(said) == _folded(right) if fold else said == right)

    return score


def _folded(text: str) -> str:
    return " ".join(text.casefold().split())
