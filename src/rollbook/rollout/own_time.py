"""A rollout's own time over one stretch of work: it is charged as it passes, and at the deadline the work is cut.

Own time stands still while the work does nothing but wait for limiters.
"""

from __future__ import annotations

import asyncio

from rollbook.rollout.limits import Budget
from rollbook.rollout.stopwatch import Part, Stopwatch

__all__ = ["OwnTime"]


class OwnTime:
    """Own time runs inside of ``async with``. Raises `TimeoutError` at the deadline."""

    __slots__ = ("_budget", "_since", "_timer", "_watch")

    def __init__(self, budget: Budget, watch: Stopwatch) -> None:
        self._budget, self._watch = budget, watch
        self._timer = asyncio.timeout(None)
        self._since: float | None = None
        """When it began to run, in seconds since the rollout's start; None: it stands still."""

    async def __aenter__(self) -> OwnTime:
        await self._timer.__aenter__()
        self._run()
        return self

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._charge()
        await self._timer.__aexit__(kind, error, None)

    @property
    def over(self) -> bool:
        """The deadline passed meanwhile, whatever came of the work."""
        return self._timer.expired()

    def turn_to(self, part: Part) -> None:
        """What follows belongs to `part` of the time split; own time stands still where that is the limiter's."""
        self._watch.turn_to(part)
        if part is not Part.LIMITER:
            self._run()
            return
        self._charge()
        if not self.over:
            self._timer.reschedule(None)

    def _run(self) -> None:
        self._charge()
        self._since, left = self._watch.elapsed, self._budget.seconds_left
        if left < float("inf") and not self.over:
            self._timer.reschedule(asyncio.get_running_loop().time() + left)

    def _charge(self) -> None:
        if self._since is not None:
            self._budget.seconds += self._watch.elapsed - self._since
            self._since = None
