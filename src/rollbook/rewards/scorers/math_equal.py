"""Mathematical equivalence, through the package math-verify (extra ``math``).

Rules: the target must be readable as mathematics, else the scoring fails; an answer that holds none is wrong. Reading
and comparing run in a process beside this one (`rollbook.envs.in_process`), for they compute. An answer whose
comparison takes more processor time than it may is wrong: what the target takes is small, so that is the answer's
doing. A process that is silent for longer than that is ended, and then the scoring fails.
"""

from __future__ import annotations

import asyncio
from typing import Protocol, cast

from rollbook.envs.offloop import in_process
from rollbook.envs.protocol import Rewards
from rollbook.errors import optional
from rollbook.rewards.scorers.scorer import Answer, Scorer, ScoringFailed, Target, answer_text, target_text
from rollbook.trace.trace import Trace

__all__ = ["math_equal"]

MAX_ANSWER = 20_000
"""Characters of an answer that is looked at; a longer one is wrong."""
WALL_SHARE = 4.0
"""Seconds of wall time for each second of processor time, for a machine with other work."""
START_SECONDS = 30.0
"""For the start of the process, which imports a large library once."""


class _Verify(Protocol):
    """`rollbook.rewards.scorers.math_process`."""

    def compare(self, right: str, said: str, seconds: float) -> tuple[bool, bool]: ...


def math_equal(target: Target = None, *, answer: Answer = answer_text, seconds: float = 5.0) -> Scorer:
    """1 where the answer is mathematically equal to the target (``\\boxed{\\frac{1}{2}}`` and 0.5), 0 elsewhere.

    The answer counts as math-verify reads it: a boxed expression first, else the last one. `target`: None for the
    task's own. `seconds`: processor time of one comparison. Raises `UsageError` where the extra is missing.
    """
    module = optional(
        "rollbook.rewards.scorers.math_process",
        "math_verify",
        says=lambda error: (
            f"math_equal needs the package math-verify ({error.name} is missing): run pip install '.[math]' in "
            "Rollbook's checkout"
        ),
    )
    compare = cast("_Verify", module).compare

    async def score(trace: Trace, /) -> Rewards:
        right, said = target_text(trace, target), answer(trace)
        if not said.strip() or len(said) > MAX_ANSWER:
            return Rewards(0.0, metrics={"answered": float(bool(said.strip())), "out_of_time": 0.0})
        try:
            async with asyncio.timeout(seconds * WALL_SHARE + START_SECONDS):
                equal, late = await in_process(compare, right, said, seconds)
        except TimeoutError:
            raise ScoringFailed(f"the answer could not be compared with {right!r} in time") from None
        return Rewards(float(equal), metrics={"answered": 1.0, "out_of_time": float(late)})

    return score
