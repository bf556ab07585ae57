"""The circuit breaker: stops a run whose error rate says that the infrastructure is down. Pure.

Rules: it looks at how the last attempts ended, and at nothing else; an error is one that says nothing of the policy
(kind `error`), and one that only follows from something else (`cancelled`, `peer`) does not count at all, nor does
`interrupted`: one worker's death cuts off all that it ran, and workers that go on dying stop a run by themselves. A run
that went on would burn its retries, and what few rollouts came through would be the training set.
"""

from __future__ import annotations

from collections import Counter, deque

import msgspec

from rollbook.errors import ConfigError, UsageError
from rollbook.trace import EndingKind, Reason

__all__ = ["Breaker", "BreakerRules", "InfrastructureDown"]

_FOLLOWS = frozenset({Reason.CANCELLED, Reason.PEER, Reason.INTERRUPTED})


class InfrastructureDown(UsageError):
    """Too many attempts in a row of a run failed for reasons outside of the policy."""


class BreakerRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a run is stopped."""

    share: float = 0.5
    """Above this share of errors; 1: never."""
    window: int = 200
    """Over so many attempts, the last ones."""
    least: int = 40
    """Not before so many have ended."""

    def __post_init__(self) -> None:
        if not 0 <= self.share <= 1:
            raise ConfigError(f"BreakerRules: share must be between 0 and 1, not {self.share}")
        if not 1 <= self.least <= self.window:
            raise ConfigError(f"BreakerRules: least must be between 1 and window, not {self.least}")


class Breaker:
    """Fed with the ending of each attempt, in the order in which they end."""

    def __init__(self, rules: BreakerRules | None = None) -> None:
        self._rules = rules or BreakerRules()
        self._last: deque[Reason] = deque(maxlen=self._rules.window)

    def ended(self, reason: Reason) -> None:
        """An attempt ended."""
        if reason not in _FOLLOWS:
            self._last.append(reason)

    @property
    def errors(self) -> Counter[Reason]:
        """The errors among the last attempts, by reason."""
        return Counter(reason for reason in self._last if reason.kind is EndingKind.ERROR)

    @property
    def open(self) -> bool:
        """True where the run is to be stopped."""
        return len(self._last) >= self._rules.least and self.errors.total() > self._rules.share * len(self._last)

    def check(self) -> None:
        """Raises `InfrastructureDown`, with the reasons, where the run is to be stopped."""
        if not self.open:
            return
        found = ", ".join(f"{count} {reason}" for reason, count in self.errors.most_common())
        raise InfrastructureDown(
            f"the last {len(self._last)} attempts ended with {self.errors.total()} errors ({found}), more than a share "
            f"of {self._rules.share:g}; mend what fails, then go on with the run"
        )
