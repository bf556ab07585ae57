"""When the whole of a worker's memory is searched for cyclic garbage: not in the middle of ten thousand rollouts.

A full collection looks at every object that lives, some hundred microseconds for each rollout in flight, and Python
does it whenever their number has grown by a quarter: the event loop stands still for hundreds of milliseconds, again
and again. So while rollouts run the oldest generation is collected by this rule alone: when few are in flight, or when
so many have ended since the last time that it hardly counts. What was there before the rollouts is left out of it.
"""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Callable
from dataclasses import dataclass

__all__ = ["Collector"]

FEW = 200
"""Rollouts in flight, and rollouts that ended: a collection takes some ten milliseconds then."""
MANY = 20_000
"""Ended rollouts behind which it is done whatever is in flight."""
SECONDS = 1.0
"""Between two looks."""
NEVER = 1_000_000


@dataclass(slots=True)
class _Setting:
    """Python's own settings, which are changed while any collector is open, and come back behind the last."""

    users: int = 0
    before: tuple[int, int, int] = (0, 0, 0)
    """The thresholds of when the first one was opened."""

    def take(self) -> None:
        """One more collector is open."""
        self.users += 1
        if self.users == 1:
            self.before = gc.get_threshold()
            gc.collect()
            gc.freeze()
            gc.set_threshold(*self.before[:2], NEVER)

    def give_back(self) -> None:
        """One is closed."""
        self.users -= 1
        if self.users == 0:
            gc.set_threshold(*self.before)
            gc.unfreeze()


_SETTING = _Setting()
"""One, as the process has one garbage collector."""


class Collector:
    """Collects by the rule, inside of ``async with``."""

    def __init__(self, counts: Callable[[], tuple[int, int]]) -> None:
        """`counts` gives the rollouts in flight and those that ended so far."""
        self._counts = counts
        self._ended = 0
        self._timer: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Collector:
        _SETTING.take()
        self._later()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()
        _SETTING.give_back()

    def _later(self) -> None:
        self._timer = asyncio.get_running_loop().call_later(SECONDS, self._look)

    def _look(self) -> None:
        in_flight, ended = self._counts()
        if is_due(in_flight, ended - self._ended):
            gc.collect()
            self._ended = ended
        self._later()


def is_due(in_flight: int, ended: int) -> bool:
    """True where the whole is to be searched now; `ended`: rollouts since the last time."""
    return ended >= max(MANY, 4 * in_flight) or (in_flight < FEW <= ended)
