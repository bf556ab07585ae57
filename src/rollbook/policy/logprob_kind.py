"""Which distribution an engine's logprobs are of, found out by asking it and not from its documentation.

Three one-token requests behind the same prompt, each with the most likely tokens listed: untouched, at temperature
`TEMPERATURE`, and cut to the most likely token. Where temperature is counted in, the gap of two tokens grows by its
inverse; where truncation is, all other tokens are gone. What fits none of the three kinds is `unknown`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from math import exp

from rollbook.errors import UsageError
from rollbook.trace.call import LogprobKind, Sampling
from rollbook.trace.checks import LOGPROB_SLACK

__all__ = ["LISTED", "PROBES", "TEMPERATURE", "Listed", "find_kind", "kind_of"]

LISTED = 4
"""Tokens that each request lists beside the sampled one."""
TEMPERATURE = 0.5
"""Of the second request."""
PROBES = (
    Sampling(max_tokens=1, seed=0),
    Sampling(max_tokens=1, seed=0, temperature=TEMPERATURE),
    Sampling(max_tokens=1, seed=0, top_k=1),
)
"""The three requests: untouched, tempered, cut."""
_LEAST_GAP = 0.2
"""Between two tokens' logprobs, above what rounding and batching do to them."""
_TOLERANCE = 0.2
"""Relative, of a gap."""
_SENTINEL = -9999.0
"""Stands for a probability of zero; so does everything below."""

Listed = Mapping[int, float]
"""Logprobs by token id."""


async def find_kind(ask: Callable[[Sampling], Awaitable[Listed]]) -> LogprobKind:
    """The kind, from an engine that `ask` makes one request of; an engine that lists nothing has kind `unknown`."""
    plain, tempered, cut = [await ask(probe) for probe in PROBES]
    return kind_of(plain, tempered, cut)


def kind_of(plain: Listed, tempered: Listed, cut: Listed) -> LogprobKind:
    """The kind, from the lists of the three requests. Raises `UsageError` where they are no logprobs."""
    if any(value > LOGPROB_SLACK for value in plain.values()) or sum(map(exp, plain.values())) > 1 + LOGPROB_SLACK:
        raise UsageError("the engine gives logits where logprobs are asked for: set its mode to one of logprobs")
    ratio = _ratio(plain, tempered)
    if ratio is None:
        return LogprobKind.UNKNOWN
    whole = sum(value > _SENTINEL for value in cut.values()) > 1
    if abs(ratio - 1) < _TOLERANCE:
        return LogprobKind.RAW if whole else LogprobKind.UNKNOWN
    if abs(ratio * TEMPERATURE - 1) < _TOLERANCE:
        return LogprobKind.TEMPERATURE if whole else LogprobKind.PROCESSED
    return LogprobKind.UNKNOWN


def _ratio(plain: Listed, tempered: Listed) -> float | None:
    """How the widest gap grew; None where no gap is wide enough to tell."""
    both = [token for token in plain if min(plain[token], tempered.get(token, _SENTINEL)) > _SENTINEL]
    if not both:
        return None
    low, high = min(both, key=plain.__getitem__), max(both, key=plain.__getitem__)
    gap = plain[high] - plain[low]
    return (tempered[high] - tempered[low]) / gap if gap > _LEAST_GAP else None
