"""Faults on demand: which request of which session goes wrong, and how.

Rule: whether a request fails is a pure function of the plan's seed, the session and the number of the session's
request (from 0). So two runs with the same plan meet the same faults whatever their timing, and a test can tell from
the plan alone how each rollout should have ended. A fault planned for a session comes before one planned for a number,
and that before one drawn by its rate. A request that names no session (a client's greeting) is struck only where the
session "" is planned for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from hashlib import blake2b
from math import inf

import msgspec

from rollbook.errors import UsageError

__all__ = ["Dialect", "Fault", "FaultPlan"]


class Dialect(StrEnum):
    """Which server is spoken."""

    VLLM = "vllm"
    """vLLM: ``/inference/v1/generate``, ``/v1/completions`` and the control routes of its development mode."""
    SGLANG = "sglang"
    """SGLang: ``/generate`` and its control routes."""
    LLAMACPP = "llamacpp"
    """llama.cpp's server: ``/completion``."""
    OPENAI = "openai"
    """A text-only endpoint: ``/v1/chat/completions``, no ids."""


class Fault(StrEnum):
    """What goes wrong with one request."""

    BUSY = "busy"
    """429 without Retry-After."""
    BUSY_LATER = "busy_later"
    """429 with Retry-After."""
    UNAVAILABLE = "unavailable"
    """503."""
    SERVER_ERROR = "server_error"
    """500."""
    RESET = "reset"
    """The connection is reset before any reply."""
    SLOW = "slow"
    """The first byte comes `FaultPlan.slow` seconds late."""
    TRUNCATED = "truncated"
    """The body ends in its middle and the connection closes."""
    NO_LOGPROBS = "no_logprobs"
    """The reply holds ids and no logprobs."""
    FEW_LOGPROBS = "few_logprobs"
    """One logprob is left out. llama.cpp does so by itself at times, and its client asks again for it."""
    WRONG_COUNT = "wrong_count"
    """The engine counts one sampled token too many."""
    WRONG_PROMPT_COUNT = "wrong_prompt_count"
    """The engine counts one prompt token too many."""
    NAN = "nan"
    """A logprob is NaN, as the server's JSON writes it: bare or null."""
    SENTINEL = "sentinel"
    """A logprob is the number that the server writes for a probability of zero."""
    CUT_PROMPT = "cut_prompt"
    """The engine drops the front half of the prompt and says so only in its counts and its echo."""
    ALTERED_IDS = "altered_ids"
    """The engine ran on another prompt of the same length; only its echo shows it."""
    ABORT = "abort"
    """The engine aborts half-way and returns the ids so far."""
    UPDATE = "update"
    """The weights are replaced half-way; ids of both versions come back."""


ON_THE_WIRE = frozenset(
    (
        Fault.BUSY,
        Fault.BUSY_LATER,
        Fault.UNAVAILABLE,
        Fault.SERVER_ERROR,
        Fault.RESET,
        Fault.SLOW,
        Fault.TRUNCATED,
    )
)
"""Faults of the transport, which every dialect can have."""
_CANNOT: Mapping[Dialect, frozenset[Fault]] = {
    Dialect.VLLM: frozenset(),
    Dialect.SGLANG: frozenset(),
    Dialect.LLAMACPP: frozenset((Fault.ALTERED_IDS, Fault.ABORT, Fault.UPDATE)),
    Dialect.OPENAI: frozenset(Fault) - ON_THE_WIRE - {Fault.WRONG_COUNT},
}


class FaultPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When which fault strikes."""

    seed: int = 0
    """Of the draws by `rates`."""
    rates: dict[Fault, float] = {}
    """Share of all requests that a fault strikes; together at most 1. Faults that a dialect cannot have do nothing."""
    sessions: dict[str, Sequence[Fault | None]] = {}
    """Session -> the faults of its first, second ... request; None: none. Later requests go by what is below."""
    requests: dict[int, Fault] = {}
    """Number of a session's request (from 0) -> the fault that strikes it in every session that has a name."""
    retry_after: float = 0.05
    """Seconds that `BUSY_LATER` asks to wait."""
    slow: float = 0.2
    """Seconds that `SLOW` adds."""

    def __post_init__(self) -> None:
        if not all(0 <= each < inf for each in (self.retry_after, self.slow)):
            raise UsageError("the seconds of a fault plan are finite, none below 0")
        if sum(self.rates.values()) > 1 + 1e-9 or any(rate < 0 for rate in self.rates.values()):
            raise UsageError("the rates of a fault plan are shares of all requests: none below 0, at most 1 together")

    def fault(self, session: str, number: int, dialect: Dialect) -> Fault | None:
        """What happens to request `number` (from 0) of `session`."""
        planned = self.sessions.get(session, ())
        if number < len(planned):
            return planned[number]
        if not session:
            return None
        if number in self.requests:
            return self.requests[number]
        found = self._drawn(session, number)
        return None if found in _CANNOT[dialect] else found

    def check(self, dialect: Dialect) -> None:
        """Raise `UsageError` where a fault is planned by name that `dialect` cannot have."""
        named = {*self.requests.values(), *(each for faults in self.sessions.values() for each in faults)}
        if foreign := named & _CANNOT[dialect]:
            raise UsageError(f"{dialect} has no such fault: {', '.join(sorted(filter(None, foreign)))}")

    def _drawn(self, session: str, number: int) -> Fault | None:
        if not self.rates:
            return None
        digest = blake2b(f"{self.seed}/{session}/{number}".encode(), digest_size=8).digest()
        left = int.from_bytes(digest, "little") / 2**64
        for fault, rate in sorted(self.rates.items()):
            left -= rate
            if left < 0:
                return fault
        return None
