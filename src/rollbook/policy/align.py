"""Put an engine's logprob entries beside the ids that it sampled, where entries may be missing.

The entries are the sampled tokens in order with some left out, so they embed into the ids as a subsequence. An
entry's position is known exactly when the leftmost and the rightmost embedding agree on it: every other embedding
lies between the two. Such a position gets the entry's logprob. All others, also those where two equal ids leave it
open which of them lost its entry, are reported missing. No position is ever given another token's logprob.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rollbook.trace.checks import LOGPROB_SLACK
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["FLOOR", "Alignment", "align", "checked_logprob", "checked_logprobs"]

FLOOR = -1e30
"""Logprobs below it are sentinels (the float minimum stands for a probability of zero) and are refused."""


@dataclass(frozen=True, slots=True)
class Alignment:
    """Logprobs over the sampled ids, as far as the entries say them."""

    logprobs: npt.NDArray[np.float32]
    """float32, shape (tokens,); NaN at the missing positions."""
    missing: npt.NDArray[np.int32]
    """Positions without a logprob, ascending."""


def align(tokens: Sequence[int], entries: Sequence[tuple[int, float]]) -> Alignment:
    """Align (id, logprob) `entries` with `tokens`. Raises `RolloutFailure` (`engine_contract`) if they do not embed."""
    ids = [entry[0] for entry in entries]
    first = _embed(tokens, ids)
    last = [len(tokens) - 1 - at for at in reversed(_embed(tokens[::-1], ids[::-1]))]
    logprobs = np.full(len(tokens), np.nan, np.float32)
    for left, right, (_, logprob) in zip(first, last, entries, strict=True):
        if left == right:
            logprobs[left] = checked_logprob(logprob)
    return Alignment(logprobs, np.flatnonzero(np.isnan(logprobs)).astype(np.int32))


def checked_logprob(value: float) -> float:
    """`value`, if it can be a logprob; NaN, sentinels and positive values are an `engine_contract` failure."""
    if not math.isfinite(value) or value < FLOOR or value > LOGPROB_SLACK:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine gave {value} as a logprob")
    return value


def checked_logprobs(values: Sequence[float | None], floor: float = FLOOR) -> npt.NDArray[np.float32]:
    """`values`, one a sampled token, as float32, if all of them can be logprobs; `floor`: the engine's own sentinel,
    refused like all below. A missing one is refused as well.

    Raises `RolloutFailure` (`engine_contract`) at the first that cannot.
    """
    if None in values:
        raise RolloutFailure(Reason.ENGINE_CONTRACT, "the engine left a logprob out")
    wide = np.array(values, np.float64)
    fine = (wide > floor) & (wide <= LOGPROB_SLACK)  # NaN makes both false
    if not fine.all():
        raise RolloutFailure(Reason.ENGINE_CONTRACT, f"the engine gave {wide[~fine][0]} as a logprob")
    return wide.astype(np.float32)


def _embed(tokens: Sequence[int], ids: Sequence[int]) -> list[int]:
    """The leftmost positions of `ids` as a subsequence of `tokens`."""
    found: list[int] = []
    at = 0
    for number in ids:
        while at < len(tokens) and tokens[at] != number:
            at += 1
        if at == len(tokens):
            raise RolloutFailure(Reason.ENGINE_CONTRACT, f"a logprob for id {number}, which was not sampled there")
        found.append(at)
        at += 1
    return found
