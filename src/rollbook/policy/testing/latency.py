"""How long a request takes: queue, prefill and decoding, in seconds.

Rule: the times of a request are a pure function of the model, the session and the number of its request, so that a
time split can be held against them.
"""

from __future__ import annotations

import math
from hashlib import blake2b
from statistics import NormalDist

import msgspec

from rollbook.errors import UsageError

__all__ = ["Latency", "Times"]


class Times(msgspec.Struct, frozen=True):
    """The parts of one request, in seconds."""

    queue: float
    prefill: float
    decode: float

    @property
    def total(self) -> float:
        """All of it."""
        return self.queue + self.prefill + self.decode


class Latency(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The parts of a request in seconds; all 0 answers at once."""

    queue: float = 0.0
    """Before anything is done."""
    prefill: float = 0.0
    """Before the first token, whatever the prompt."""
    per_prompt_token: float = 0.0
    """Added to the prefill for each prompt token that is not cached."""
    per_token: float = 0.0
    """Decoding, for each sampled token."""
    spread: float = 0.0
    """Sigma of a lognormal factor on all parts, drawn for each request; 0: none."""
    sessions: dict[str, float] = {}
    """Session -> factor on all its parts; others have 1."""

    def __post_init__(self) -> None:
        parts = (self.queue, self.prefill, self.per_prompt_token, self.per_token, self.spread, *self.sessions.values())
        if not all(0 <= part < math.inf for part in parts):
            raise UsageError("the parts of a latency are finite seconds, none below 0")

    seed: int = 0
    """Of the lognormal draws."""

    def times(self, session: str, number: int, prompt_tokens: int, tokens: int) -> Times:
        """Of request `number` of `session`, with `prompt_tokens` to compute and `tokens` to sample."""
        factor = self.sessions.get(session, 1.0) * self._factor(session, number)
        prefill = self.prefill + self.per_prompt_token * prompt_tokens
        return Times(self.queue * factor, prefill * factor, self.per_token * tokens * factor)

    def _factor(self, session: str, number: int) -> float:
        if not self.spread:
            return 1.0
        digest = blake2b(f"{self.seed}/{session}/{number}".encode(), digest_size=8).digest()
        share = (int.from_bytes(digest, "little") + 0.5) / 2**64
        return math.exp(self.spread * NormalDist().inv_cdf(share))
