"""How late an event loop is: by how much what is due at some moment runs after it.

A stretch of blocking work makes late whatever falls due in it, not only the one tick that is measured. So a tick that
comes late counts for those that it kept from coming, too, each by its own lateness (the correction of HdrHistogram for
what is known as coordinated omission).
"""

from __future__ import annotations

import asyncio

from rollbook.rollout.histogram import SECONDS, Histogram

__all__ = ["TICK", "LoopLag", "count_tick"]

TICK = 0.02
"""Seconds between two ticks."""


class LoopLag:
    """Measures the loop that it is entered in, inside of ``async with``."""

    def __init__(self) -> None:
        self.histogram = Histogram(bounds=SECONDS)
        """Seconds of lateness, one value for each moment at which a tick was due."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._due = 0.0

    async def __aenter__(self) -> LoopLag:
        self._loop = asyncio.get_running_loop()
        self._next()
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def _next(self) -> None:
        assert self._loop is not None
        self._due = self._loop.time() + TICK
        self._timer = self._loop.call_at(self._due, self._tick)

    def _tick(self) -> None:
        assert self._loop is not None
        count_tick(self.histogram, self._loop.time() - self._due)
        self._next()


def count_tick(histogram: Histogram, late: float) -> None:
    """Count a tick that came `late` seconds late, and those that it kept from coming."""
    late = max(late, 0.0)
    for missed in range(int(late / TICK) + 1):
        histogram.add(max(late - missed * TICK, 0.0))
