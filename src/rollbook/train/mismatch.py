"""Behaviour against trainer: how far the engine's logprobs and the trainer's are apart on the same tokens.

With mu the engine's probability of a token that it sampled and pi the trainer's, both for the same weights: k1 is the
mean of log mu - log pi, k3 the mean of pi / mu - 1 - (log pi - log mu) (Schulman, "Approximating KL divergence"); both
estimate KL(mu, pi), k3 is never below 0. A token without a logprob of the engine is counted and in no mean.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.trace.annotation import Annotation
from rollbook.trace.facts import MISMATCH, Mismatch

__all__ = ["PRODUCER", "annotate", "compare", "together"]

PRODUCER = "trainer"
"""Who writes the annotations."""


def compare(behaviour: npt.NDArray[np.float32], trainer: npt.NDArray[np.float32], *, version: int | None) -> Mismatch:
    """The two against each other, token by token: float32, shape (tokens,), NaN in `behaviour` where the engine gave
    none. `version`: of the trainer's weights."""
    known = ~np.isnan(behaviour)
    apart = trainer[known].astype(np.float64) - behaviour[known].astype(np.float64)
    if not len(apart):
        return Mismatch(tokens=0, unknown=len(behaviour), version=version)
    return Mismatch(
        tokens=len(apart),
        unknown=len(behaviour) - len(apart),
        mean=float(np.abs(apart).mean()),
        most=float(np.abs(apart).max()),
        k1=float(-apart.mean()),
        k3=float((np.expm1(apart) - apart).mean()),
        version=version,
    )


def together(parts: Iterable[Mismatch], *, version: int | None = None) -> Mismatch:
    """Several as one: means over all tokens, the largest difference of any."""
    every = list(parts)
    judged = [each for each in every if each.tokens]
    tokens, unknown = sum(each.tokens for each in judged), sum(each.unknown for each in every)
    if not judged:
        return Mismatch(tokens=0, unknown=unknown, version=version)
    return Mismatch(
        tokens=tokens,
        unknown=unknown,
        mean=sum((each.mean or 0.0) * each.tokens for each in judged) / tokens,
        most=max(each.most or 0.0 for each in judged),
        k1=sum((each.k1 or 0.0) * each.tokens for each in judged) / tokens,
        k3=sum((each.k3 or 0.0) * each.tokens for each in judged) / tokens,
        version=version,
    )


def annotate(rows: Mapping[str, Mismatch], step: int) -> list[Annotation]:
    """For a sink: one annotation a rollout, of this training step."""
    return [
        Annotation(producer=PRODUCER, name=MISMATCH, rollout=rollout, value=msgspec.to_builtins(row), step=step)
        for rollout, row in rows.items()
    ]
