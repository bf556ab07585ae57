"""What a request asks for and what the engine answers, in no server's words.

Rule: the dialects translate; nothing behind them knows which one was spoken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto

from rollbook.policy.testing.latency import Times
from rollbook.trace.call import LogprobKind, Sampling

__all__ = ["Answer", "Ask", "Refused", "Reply", "Request", "Stop", "Transport"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One generation."""

    session: str
    number: int
    """Which of its session's requests, from 0."""
    rid: str
    """Its name for aborts."""
    prompt: list[int]
    sampling: Sampling
    limit: int
    """The most tokens, room in the context considered."""
    seed: int
    stops: frozenset[int]
    """Ids that end it."""
    kind: LogprobKind
    """Which logprobs are wanted."""
    top: int = 0
    """Alternatives that are listed for each token."""
    counts_prompt: bool = False
    """Presence and frequency penalties count the prompt's tokens too."""


class Stop(Enum):
    """Why a generation ended."""

    ID = auto()
    STRING = auto()
    LENGTH = auto()
    ABORT = auto()


@dataclass(slots=True, kw_only=True)
class Answer:
    """What came of it. Faults are worked into it before it is put into a server's words."""

    prompt: list[int]
    """As the engine says it ran on."""
    token_ids: list[int]
    logprobs: list[float | None] | None
    """None in the list: that one is left out. None in its place: all are."""
    top: list[list[tuple[int, float]]]
    """(id, logprob) of the likeliest, for each token; empty lists where none were asked for."""
    stop: Stop
    matched: int | str | None
    """The id or string that ended it; None where none did."""
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    spans: list[tuple[str, int]]
    """(version label, tokens)."""
    times: Times
    bare_nan: bool = False
    """NaN is written as such, which is no JSON."""


class Refused(Exception):
    """The server refuses; the dialect puts it into its own words."""

    def __init__(
        self, status: int, message: str, *, kind: str = "", param: str = "", fields: Mapping[str, int] | None = None
    ) -> None:
        """`kind`, `param` and `fields`: what a dialect adds to its error body."""
        super().__init__(message)
        self.status = status
        self.kind = kind
        self.param = param
        self.fields = fields or {}


class Transport(Enum):
    """How a reply travels."""

    WHOLE = auto()
    RESET = auto()
    """No reply; the connection is reset."""
    TRUNCATED = auto()
    """Half of the body, then the end of the connection."""


@dataclass(frozen=True, slots=True)
class Request:
    """One HTTP request."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One HTTP reply."""

    body: bytes = b""
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict[str, str])
    transport: Transport = Transport.WHOLE
