"""Of which distribution an engine's logprobs are, found out by asking it.

Three one-token requests behind the same prompt: as the model has it (`PLAIN`), at another temperature (`HOT`), and at
that temperature cut to two tokens (`CUT`). Of each reply the few highest logprobs of its place are looked at. They do
not move with the temperature: `raw`. They move, and the cut leaves them: `temperature`. They move, and behind the cut
two tokens have all the probability: `processed`. Whatever fits none of these, or a distribution too flat to tell, is
`unknown`. Nothing is taken from an engine's documentation, for servers are started with flags.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Sequence

from rollbook.trace.call import LogprobKind, Sampling

__all__ = ["CUT", "HOT", "LISTED", "PLAIN", "find_kind", "kind_of"]

PLAIN = Sampling(seed=0, max_tokens=1)
"""The model's own distribution."""
HOT = Sampling(seed=0, max_tokens=1, temperature=2.0)
"""Twice as flat."""
CUT = Sampling(seed=0, max_tokens=1, temperature=2.0, top_k=2)
"""As `HOT`, of the two most likely tokens only."""
LISTED = 5
"""Logprobs looked at in each reply, the highest first."""
NOISE = 0.05
"""What the same logprob may differ by between two requests: number formats of 16 bits, kernels that depend on the
batch."""
_IMPOSSIBLE = -1000.0
"""Logprobs below it stand for a probability of zero."""


async def find_kind(ask: Callable[[Sampling], Awaitable[Sequence[float | None]]]) -> LogprobKind:
    """`ask` makes one request with the given sampling and returns the highest logprobs of the first sampled place; an
    engine that does not list them returns none, and its kind is `unknown`."""
    return kind_of(await ask(PLAIN), await ask(HOT), await ask(CUT))


def kind_of(plain: Sequence[float | None], hot: Sequence[float | None], cut: Sequence[float | None]) -> LogprobKind:
    """The kind that explains the three lists of logprobs."""
    first, second, third = _highest(plain), _highest(hot), _highest(cut)
    if min(len(first), len(second)) < 2 or not third or first[0] - first[-1] < 4 * NOISE:
        return LogprobKind.UNKNOWN
    if _alike(first, second):
        return LogprobKind.RAW if _alike(third[:2], first[:2]) else LogprobKind.UNKNOWN
    if _alike(third[:2], second[:2]):
        return LogprobKind.TEMPERATURE
    whole = abs(sum(map(math.exp, third)) - 1.0) < NOISE
    return LogprobKind.PROCESSED if whole and len(third) <= 2 else LogprobKind.UNKNOWN


def _highest(listed: Sequence[float | None]) -> list[float]:
    real = [value for value in listed if value is not None and value > _IMPOSSIBLE]
    return sorted(real, reverse=True)[:LISTED]


def _alike(some: Sequence[float], others: Sequence[float]) -> bool:
    return len(some) == len(others) and all(abs(one - other) < NOISE for one, other in zip(some, others, strict=True))
