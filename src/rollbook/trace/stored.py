"""Stored traces that are not decoded whole: what a sample needs of the common case, one branch of which all trains.

Rules: text is not looked at, and the arrays not yet (`rollbook.trace.sample_block` checks them, many traces at once).
What is not of the common case is not taken (`open_stored` gives None), and goes the general way, which decides or
complains.
"""

from __future__ import annotations

from typing import Protocol

import msgspec

from rollbook.errors import ConfigError, StoreError
from rollbook.trace.call import LogprobKind, SamplingFields
from rollbook.trace.ending import Ending, is_reward
from rollbook.trace.record import Agent, ScoringStatus, TraceTail
from rollbook.trace.trace import Trace
from rollbook.trace.wire import TokenPart, decode_tokens

__all__ = ["NUMBER", "OpenedTrace", "StoredCall", "StoredHead", "StoredTrace", "open_stored"]

NUMBER = 4
"""Bytes of one number in every column."""


class StoredTrace(Protocol):
    """One sealed trace as it is stored, not decoded yet."""

    @property
    def rollout(self) -> str:
        """The rollout's id."""
        ...

    @property
    def marks(self) -> int | None:
        """How many of its nodes are marked; None: not known."""
        ...

    def section(self, name: str) -> bytes:
        """One section of the wire form (`rollbook.trace.wire`); raises `StoreError` where it is damaged."""
        ...

    def trace(self) -> Trace | None:
        """The trace, decoded and checked; None where it is damaged, which its source has told then."""
        ...


class StoredPolicy(msgspec.Struct, frozen=True, gc=False):
    """What a sample needs of a policy."""

    trainable: bool = True


class StoredHead(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a sample needs of the head."""

    rollout: str
    group: str
    agent: Agent = Agent()
    policies: tuple[StoredPolicy, ...]
    run: str = ""
    episode: str = ""
    tokens: bool = True


class StoredCall(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """What a sample needs of a call."""

    node: int | None = None
    after: int = -1
    policy: int = 0
    sampling: SamplingFields
    logprob_kind: LogprobKind | None = None


class _Calls(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    first_call: int
    first_edge: int
    calls: list[StoredCall]
    edges: list[msgspec.Raw]


_decode_head = msgspec.msgpack.Decoder(StoredHead).decode
_decode_tail = msgspec.msgpack.Decoder(TraceTail).decode
_decode_calls = msgspec.msgpack.Decoder(_Calls).decode


class OpenedTrace(msgspec.Struct, frozen=True, eq=False, gc=False):
    """A stored trace of the common case, its calls and arrays not looked at yet."""

    head: StoredHead
    tail: TraceTail
    calls: list[StoredCall]
    columns: TokenPart
    ending: Ending

    @property
    def id(self) -> str:
        """The rollout's id."""
        return self.head.rollout

    @property
    def tokens(self) -> int:
        """How many token ids it has."""
        return len(self.columns.tokens) // NUMBER


def open_stored(stored: StoredTrace) -> OpenedTrace | None:
    """A stored trace of the common case; None for any other."""
    if stored.marks != 0:
        return None
    try:
        head = _decode_head(stored.section("head"))
        calls = _decode_calls(stored.section("calls"))
        tail = _decode_tail(stored.section("tail"))
        columns = decode_tokens(stored.section("tokens"))
    except (msgspec.MsgspecError, ValueError, ConfigError, StoreError):
        return None  # what is wrong with it, if anything, is told on the general way
    common = (
        head.tokens
        and head.rollout == stored.rollout
        and head.agent.trainable
        and not (calls.edges or calls.first_call or calls.first_edge or tail.turn_rewards)
        and _rewards_fit(tail)
        and len(columns.logprobs)
        and all(policy.trainable for policy in head.policies)
    )
    return OpenedTrace(head, tail, calls.calls, columns, tail.ending) if common and tail.ending else None


def _rewards_fit(tail: TraceTail) -> bool:
    if tail.reward is None and not tail.reward_parts:
        return True
    fine = tail.reward is None or is_reward(tail.reward)
    return fine and all(map(is_reward, tail.reward_parts.values())) and tail.scoring.status is not ScoringStatus.FAILED
