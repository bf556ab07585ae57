"""What an audit says: one row per check, each with what was measured, the limit, and where it was found.

Rules: a check that could not measure says so and why, it never reports 0 in place of an answer; findings are bounded,
their total is not; the exit code follows from the rows alone: 1 where a limit broke, else 2 where the batch was empty
or a check that the gate demands was not judged, else 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

__all__ = ["Check", "Finding", "Report", "Status", "Unit"]


class Status(StrEnum):
    """What became of one check."""

    OK = "ok"
    """Measured, and within its limit."""
    BROKE = "broke"
    """Measured, and over its limit."""
    NOT_JUDGED = "not_judged"
    """The record or the caller did not give what the check needs."""
    INFO = "info"
    """Measured; the gate sets no limit."""


class Unit(StrEnum):
    """What the value of a check counts."""

    COUNT = "count"
    """Things; any may be one too many."""
    SHARE = "share"
    """From 0 to 1."""
    VERSIONS = "versions"
    """Policy versions."""
    NATS = "nats"
    """Natural logarithms of probabilities."""


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One place where a check found something."""

    rollout: str
    node: int | None = None
    """Index of the message in the trace; None: about the whole rollout."""
    token: int | None = None
    """Position within the node's token ids; None: about the whole node."""
    text: str
    """What is there, in a few words."""


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """The row of one check."""

    name: str
    status: Status
    value: float | None
    """What was measured, in `unit`; None where it was not."""
    limit: float | None
    """The most that the gate allows; None: no limit."""
    unit: Unit
    n: int
    """Over how many things it was measured."""
    of: str
    """What these things are: turns, calls, rollouts, groups, tokens."""
    says: str
    """One sentence: what it means, and what to do."""
    details: dict[str, float | int | str | None]
    """Numbers behind the value, by name."""
    findings: tuple[Finding, ...]
    """The first places, in the order of the traces."""
    found: int
    """All places, also those left out of `findings`."""


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What an audit of one batch says."""

    rollouts: int
    """Traces read."""
    checks: tuple[Check, ...]
    must_judge: tuple[str, ...]
    """Checks that the gate demands an answer from."""

    @property
    def broke(self) -> tuple[Check, ...]:
        """The checks over their limit."""
        return tuple(check for check in self.checks if check.status is Status.BROKE)

    @property
    def not_judged(self) -> tuple[Check, ...]:
        """The checks without an answer."""
        return tuple(check for check in self.checks if check.status is Status.NOT_JUDGED)

    @property
    def exit_code(self) -> int:
        """0 fine, 1 a limit broke, 2 it cannot be judged."""
        if self.broke:
            return 1
        unanswered = any(check.name in self.must_judge for check in self.not_judged)
        return 2 if unanswered or not self.rollouts else 0

    def __getitem__(self, name: str) -> Check:
        """One check by its name; raises `KeyError`."""
        for check in self.checks:
            if check.name == name:
                return check
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, the exit code included."""
        return {**msgspec.to_builtins(self), "exit_code": self.exit_code}
