"""Calls: one request to the engine each, also a failed one.

Rules: the sampling is kept whole, with every field as it was sent, for only then can it be told whether the logprobs
are of the distribution that the tokens were drawn from; what the engine did not report is None, never a default.
"""

from __future__ import annotations

from enum import StrEnum
from math import inf, isfinite
from operator import attrgetter

import msgspec

from rollbook.errors import ConfigError

__all__ = ["TRANSFORM", "Call", "Finish", "LogprobKind", "Sampling", "SamplingFields"]


class LogprobKind(StrEnum):
    """Of which distribution an engine's log-probabilities are."""

    RAW = "raw"
    """Softmax of the logits, before any sampling transform."""
    TEMPERATURE = "temperature"
    """After temperature, before truncation (top-k, top-p, min-p)."""
    PROCESSED = "processed"
    """Of the distribution that was sampled, after the whole transform."""
    UNKNOWN = "unknown"
    """The engine does not say."""


class Finish(StrEnum):
    """Why one generation stopped."""

    STOP = "stop"
    """The model emitted an end-of-turn token; it is the last sampled id."""
    STOP_STRING = "stop_string"
    """A stop string matched; no end-of-turn token was sampled."""
    LENGTH = "length"
    """The limit that was asked for, or the context, was reached."""
    ABORT = "abort"
    """The server aborted (weight update, shutdown); never a normal end."""
    ERROR = "error"
    """The request failed; no tokens count."""


class SamplingFields(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, gc=False):
    """What `Sampling` has, its values not checked."""

    temperature: float = 1.0
    """Divides the logits; 0 means greedy."""
    top_p: float = 1.0
    """Nucleus mass; 1 keeps everything."""
    top_k: int = 0
    """Keep the k most likely; 0 keeps everything."""
    min_p: float = 0.0
    """Keep what has at least this share of the top probability; 0 keeps everything."""
    repetition_penalty: float = 1.0
    """Divides the logits of tokens that occurred (multiplies negative ones); 1 leaves them."""
    presence_penalty: float = 0.0
    """Taken from the logit of each token that occurred; 0 leaves them."""
    frequency_penalty: float = 0.0
    """Taken from the logit of a token once for each time it occurred; 0 leaves them."""
    seed: int | None = None
    """None: the engine chooses; the rollout loop always sets one."""
    max_tokens: int | None = None
    """The most tokens for one generation; None: as many as the limits leave."""
    stop: tuple[str, ...] = ()
    """Stop strings."""
    stop_token_ids: tuple[int, ...] = ()
    """Ids that end a generation beside the model's own end-of-turn tokens."""
    grammar: str | None = None
    """A grammar that constrains the output (engine syntax)."""


class Sampling(SamplingFields, frozen=True):
    """The whole sampling transform of a request. The defaults leave the model's distribution as it is."""

    def __post_init__(self) -> None:
        checks = (
            (0.0 <= self.temperature < inf, "temperature must be a finite number >= 0"),
            (0.0 < self.top_p <= 1.0, "top_p must be in (0, 1]"),
            (self.top_k >= 0, "top_k must be >= 0 (0 keeps everything)"),
            (0.0 <= self.min_p < 1.0, "min_p must be in [0, 1)"),
            (0.0 < self.repetition_penalty < inf, "repetition_penalty must be a finite number > 0"),
            (isfinite(self.presence_penalty), "presence_penalty must be finite"),
            (isfinite(self.frequency_penalty), "frequency_penalty must be finite"),
            (self.max_tokens is None or self.max_tokens >= 1, "max_tokens must be >= 1 or None"),
        )
        for fine, problem in checks:
            if not fine:
                raise ConfigError(f"Sampling: {problem}")

    @property
    def transform(self) -> tuple[float | str | None, ...]:
        """What shapes the distribution: all fields but seed, limit and stops."""
        return _transform(self)

    @property
    def changes_distribution(self) -> bool:
        """True where tokens are not drawn from the model's own softmax, so that raw logprobs are not theirs."""
        return self.transform != _NEUTRAL

    @property
    def truncates(self) -> bool:
        """True where more than temperature changes the distribution."""
        return self.transform[1:] != _NEUTRAL[1:]


TRANSFORM = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "grammar",
)
"""The fields of `Sampling.transform`, in its order."""
_transform = attrgetter(*TRANSFORM)
_NEUTRAL = Sampling().transform


class Call(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One request to the engine."""

    node: int | None = None
    """The node whose sampled tokens it gave; None where it gave none."""
    after: int = -1
    """The last node of the prompt's path; -1 for an empty path."""
    policy: int = 0
    """Index into the trace's policy table."""
    sampling: Sampling
    """As sent, all fields explicit."""
    logprob_kind: LogprobKind | None = None
    """None where no logprobs came."""
    finish: Finish
    engine_finish: str = ""
    """The engine's own words."""
    prompt_tokens: int | None = None
    """As the engine reported it; None where it did not."""
    completion_tokens: int | None = None
    """Sampled ids that came with the reply; None where none did."""
    cached_tokens: int | None = None
    """Prompt tokens that the engine took from its cache; None where it does not say."""
    tries: int = 1
    """HTTP requests that this call took."""
    error: str | None = None
    """What went wrong; None where nothing did."""
    started: float = 0.0
    """Seconds since the rollout began."""
    wall: float = 0.0
    """Seconds from request to reply."""
    queue: float | None = None
    """Seconds in the engine's queue; None where it does not say. Likewise below."""
    prefill: float | None = None
    decode: float | None = None
