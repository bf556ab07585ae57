"""The rows of a run's report: plain numbers. What was not reported is None, which is not 0."""

from __future__ import annotations

from typing import Any

import msgspec

from rollbook.run.resources import ResourceReport
from rollbook.trace import EndingKind, Fate, Reason

__all__ = ["EndingRow", "FateRow", "GroupRow", "MemberRow", "RunReport", "TimeRow", "Tokens"]


class EndingRow(msgspec.Struct, frozen=True, kw_only=True):
    """How many rollouts ended so."""

    kind: EndingKind
    reason: Reason
    count: int


class FateRow(msgspec.Struct, frozen=True, kw_only=True):
    """What became of how many rollouts, and by which rule."""

    fate: Fate | None
    """None: nobody decided yet."""
    rule: str
    count: int


class MemberRow(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt of one member of a group."""

    rollout: str
    member: int
    attempt: int
    reason: Reason | None
    fate: Fate | None
    """None: nobody decided yet."""
    reward: float | None
    """None: no reward, which is not zero."""
    advantage: float | None
    """None: no vote, or the group is not closed."""


class GroupRow(msgspec.Struct, frozen=True, kw_only=True):
    """What was compared with each other."""

    group: str
    seat: str
    task: str
    scheduled: int | None
    """None: the group is not closed. Likewise below."""
    used: int | None
    mean: float | None
    """Of the voters' rewards as they were scored; None where nobody votes."""
    members: tuple[MemberRow, ...]
    """By member, then attempt."""


class TimeRow(msgspec.Struct, frozen=True, kw_only=True):
    """One part of the rollouts' wall time, added up over all of them."""

    part: str
    seconds: float | None
    """None: not reported for every rollout. Likewise below."""
    share: float | None
    """Of the wall time of all rollouts."""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Where the tokens went."""

    prompt: int | None
    """Prompt tokens of all calls, as the engine counted; None where it did not count them all."""
    cached: int | None
    """Of these, taken from the engine's cache; None where it did not say so for all calls."""
    sampled: int
    trained: int
    """Sampled tokens that an export without a length limit trains."""
    lost: dict[str, int]
    """The other sampled tokens, by reason."""


class RunReport(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of a run."""

    rollouts: int
    """Stored attempts, retried ones included."""
    endings: tuple[EndingRow, ...]
    """By kind and reason, in the order of the kinds."""
    dispositions: tuple[FateRow, ...]
    groups: tuple[GroupRow, ...]
    time: tuple[TimeRow, ...]
    """``wall``, then its parts, then the engine's own."""
    overlapped: float | None
    """Seconds that ran beside the rollouts' critical paths (parallel tools), added up; not part of ``wall``. None where
    no times are known."""
    tokens: Tokens
    turns: int
    tool_calls: dict[str, int]
    """Attempted tool calls by parse status."""
    wall: float | None
    """Seconds during which a rollout ran: pauses between a stop and a resume do not count. None: not known."""
    tokens_per_second: float | None
    """Sampled tokens by `wall`."""
    resources: ResourceReport | None = None
    """What the rollouts shared, and who waited for it; None: not kept (the run has not ended, or an older version made
    it)."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return msgspec.to_builtins(self)
