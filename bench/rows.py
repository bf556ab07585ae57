"""One row of the table: a figure, its target, and what did the same work beside it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["At", "Of", "Peer", "Row", "Target"]


class At(StrEnum):
    """Which side of a target is the good one."""

    MOST = "at most"
    LEAST = "at least"


class Of(StrEnum):
    """What a target is about."""

    VALUE = "value"
    RATIO = "ratio"


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What a figure is wished to keep."""

    limit: float
    at: At = At.MOST
    of: Of = Of.VALUE

    def __str__(self) -> str:
        sign = {At.MOST: "<=", At.LEAST: ">="}[self.at]
        return f"{'ratio ' if self.of is Of.RATIO else ''}{sign} {self.limit:g}"


class Peer(msgspec.Struct, frozen=True):
    """A floor or another program at the same work, measured in the same run, in the unit of its row."""

    name: str
    value: float


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One figure."""

    name: str
    value: float
    unit: str
    how: str
    """Which of the tries stands, e.g. ``median of 24 rollouts``."""
    target: Target | None = None
    """None: measured to be known."""
    peer: Peer | None = None

    @property
    def ratio(self) -> float | None:
        """Value over peer."""
        return None if self.peer is None else self.value / self.peer.value

    @property
    def met(self) -> bool | None:
        """Whether the target is kept; None without one."""
        if self.target is None:
            return None
        number = self.value if self.target.of is Of.VALUE else self.ratio
        if number is None:
            raise ValueError(f"{self.name}: a target for a ratio needs a peer")
        return number <= self.target.limit if self.target.at is At.MOST else number >= self.target.limit

    def plain(self) -> dict[str, Any]:
        """The row as plain data, ratio and verdict included."""
        return {**msgspec.to_builtins(self), "ratio": self.ratio, "met": self.met}
