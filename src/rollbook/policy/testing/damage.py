"""Works a fault into an answer that is otherwise right.

Rule: exactly one thing is wrong afterwards, so a client that does not notice it has no check for it.
"""

from __future__ import annotations

import math

from rollbook.policy.testing.ask import Answer
from rollbook.policy.testing.faults import Fault

__all__ = ["damage"]


def damage(answer: Answer, fault: Fault | None, zero: float, *, bare_nan: bool) -> None:
    """`zero`: what the server writes as the logarithm of 0. `bare_nan`: whether it writes NaN as such."""
    middle = len(answer.token_ids) // 2
    match fault:
        case Fault.NO_LOGPROBS:
            answer.logprobs = None
        case Fault.FEW_LOGPROBS:
            _replace(answer, middle, None)
        case Fault.NAN:
            _replace(answer, middle, math.nan)
            answer.bare_nan = bare_nan
        case Fault.SENTINEL:
            _replace(answer, middle, zero)
        case Fault.WRONG_COUNT:
            answer.completion_tokens += 1
        case Fault.WRONG_PROMPT_COUNT:
            answer.prompt_tokens += 1
        case Fault.CUT_PROMPT:
            answer.prompt = answer.prompt[len(answer.prompt) // 2 :]
            answer.prompt_tokens = len(answer.prompt)
            answer.cached_tokens = min(answer.cached_tokens, answer.prompt_tokens - 1)
        case Fault.ALTERED_IDS:
            answer.prompt = [answer.prompt[0] + 1, *answer.prompt[1:]]
        case _:
            pass


def _replace(answer: Answer, at: int, value: float | None) -> None:
    if answer.logprobs is not None:
        answer.logprobs[at] = value
