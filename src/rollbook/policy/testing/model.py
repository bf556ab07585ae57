"""A language model of a few tokens, made of hashes: what it samples and how likely that was always agree.

Rules. The logits of the next token are drawn from (seed, weights version, last id), so they are the same whenever they
are asked for; temperature, truncation and penalties are applied to them as the engines document it; a draw depends
on the request's seed and the position alone, so equal requests get equal tokens. An id outside the vocabulary (a script
may hold any) has a hashed logit beside the vocabulary's.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rollbook.trace.call import LogprobKind, Sampling

__all__ = ["Choice", "TinyModel", "penalises"]

_MASK = (1 << 64) - 1
_SPREAD = 1.5
"""Standard deviation of the logits."""
_KEPT = 4096
"""Distributions that are kept; more make the oldest go."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Choice:
    """The distribution of one next token, in the three forms that engines report. Lists are over the vocabulary."""

    raw: list[float]
    """Log-softmax of the logits."""
    tempered: list[float]
    """After penalties and temperature."""
    processed: list[float]
    """Of the distribution that is drawn from; -inf for what was cut."""
    cumulative: list[float]
    """Running sum of its probabilities."""
    top: int
    """The most likely id."""

    def logprobs(self, kind: LogprobKind) -> list[float]:
        """The form that `kind` names."""
        return {LogprobKind.RAW: self.raw, LogprobKind.TEMPERATURE: self.tempered}.get(kind, self.processed)


class TinyModel:
    """Hashed logits over a small vocabulary."""

    def __init__(self, vocabulary: int, seed: int) -> None:
        """`vocabulary`: ids 0 to this, the last not included."""
        self.vocabulary = vocabulary
        self._seed = seed
        self._choices: dict[tuple[int, int, object], Choice] = {}

    def choice(self, last: int, version: int, sampling: Sampling) -> Choice:
        """The distribution behind id `last`, where `sampling` does not penalise."""
        key = (last, version, sampling.transform)
        found = self._choices.get(key)
        if found is None:
            if len(self._choices) >= _KEPT:
                self._choices.pop(next(iter(self._choices)))
            found = self._choices[key] = _choice(self._logits(last, version), self._logits(last, version), sampling)
        return found

    def penalised(
        self, last: int, version: int, sampling: Sampling, counted: Sequence[int], seen: Sequence[int]
    ) -> Choice:
        """As `choice`. `counted`: tokens that count for presence and frequency; `seen`: for repetition."""
        logits = self._logits(last, version)
        return _choice(logits, _penalised(logits, sampling, counted, seen), sampling)

    def draw(self, choice: Choice, sampling: Sampling, seed: int, position: int) -> int:
        """The id at `position` of a request with `seed`."""
        if sampling.temperature == 0:
            return choice.top
        return min(bisect_right(choice.cumulative, _uniform(seed, position)), self.vocabulary - 1)

    def logprob(self, choice: Choice, kind: LogprobKind, last: int, version: int, token: int) -> float:
        """Of `token`, whatever its id."""
        if token < self.vocabulary:
            return choice.logprobs(kind)[token]
        return -0.5 - 4 * _uniform(self._seed + version + 7919 * last, token)

    def _logits(self, last: int, version: int) -> Floats:
        return np.random.default_rng([self._seed, version, last + 1]).normal(0.0, _SPREAD, self.vocabulary)


def _choice(logits: Floats, penalised: Floats, sampling: Sampling) -> Choice:
    tempered = _log_softmax(penalised / (sampling.temperature or 1.0))
    processed = _log_softmax(np.where(_kept(np.exp(tempered), sampling), tempered, -np.inf))
    return Choice(
        _log_softmax(logits).tolist(),
        tempered.tolist(),
        processed.tolist(),
        np.cumsum(np.exp(processed)).tolist(),
        int(np.argmax(processed)),
    )


def penalises(sampling: Sampling) -> bool:
    """Whether what came before matters beyond the last id."""
    return (sampling.repetition_penalty, sampling.presence_penalty, sampling.frequency_penalty) != (1.0, 0.0, 0.0)


def _penalised(logits: Floats, sampling: Sampling, counted: Sequence[int], seen: Sequence[int]) -> Floats:
    found = logits.copy()
    occurred = np.unique([each for each in seen if each < len(logits)]).astype(np.intp)
    found[occurred] = np.where(
        found[occurred] > 0,
        found[occurred] / sampling.repetition_penalty,
        found[occurred] * sampling.repetition_penalty,
    )
    for token, count in Counter(counted).items():
        if token < len(logits):
            found[token] -= sampling.presence_penalty + sampling.frequency_penalty * count
    return found


def _kept(shares: Floats, sampling: Sampling) -> npt.NDArray[np.bool_]:
    """What top-k, top-p and min-p leave of probabilities `shares`; the most likely always stays."""
    order = np.argsort(-shares, kind="stable")
    ranks = np.empty(len(shares), np.intp)
    ranks[order] = np.arange(len(shares))
    above = (np.cumsum(shares[order]) - shares[order])[ranks]
    keep = (ranks < sampling.top_k) if sampling.top_k else np.ones(len(shares), np.bool_)
    if sampling.top_p < 1:
        keep &= above < sampling.top_p
    return keep & (shares >= sampling.min_p * shares.max())


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def _uniform(seed: int, position: int) -> float:
    """In [0, 1), by the finalizer of SplitMix64 (Steele, Lea, Flood 2014)."""
    z = (seed * 0x9E3779B97F4A7C15 + (position + 1) * 0xD1B54A32D192ED03) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return (z ^ (z >> 31)) / 2**64
