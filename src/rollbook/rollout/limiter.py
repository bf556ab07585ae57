"""A limiter: so many at once for one resource, so many in a second, nobody while it is paused; it can say who waits.

Order of the checks for one entry: a free slot, first come first served; then the pause; then the rate. So whoever
sleeps out a pause holds a slot, and no more than `limit` come back behind it. They come back spread over the time
behind the pause, each at a moment of its own, for what was turned away together would else be turned away together
again. The rate is asked last, and who gets its grant enters at once.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from time import monotonic
from typing import Protocol

import msgspec

__all__ = ["Limiter", "LimiterStats", "Rate"]

AGAIN = 0.002
"""Seconds after which a rate that could not be paused is asked again."""
MAX_SPREAD = 30.0
"""The most seconds over which those who waited for the end of a pause come back."""


class Rate(Protocol):
    """Grants, so many in a second."""

    def take(self) -> float:
        """Take a grant and return 0, or return the seconds after which to ask again. Never waits."""
        ...

    def pause(self, seconds: float) -> bool:
        """No grant to anybody for so long. False where that must be asked for again. Never waits."""
        ...


class LimiterStats(msgspec.Struct, frozen=True, kw_only=True):
    """What a limiter did so far, and who is in it now."""

    name: str
    limit: int | None
    """None: no limit."""
    in_use: int
    waiting: int
    """For a slot, the end of a pause or the rate."""
    peak: int
    """The most that held a slot at once."""
    entered: int
    """How many got in."""
    waited: float
    """Seconds waited, added up over all, those who wait now and those who gave up included."""
    paused: float
    """Seconds during which nobody was let in."""


class Limiter:
    """Lets `limit` holders in at once. Belongs to one event loop."""

    def __init__(
        self, name: str, limit: int | None = None, *, rate: Rate | None = None, rng: random.Random | None = None
    ) -> None:
        """`limit`: None for no limit. `rate`: None for none. `rng`: what the spread behind a pause is drawn from."""
        self.name = name
        self.limit = limit
        self.in_use = 0
        self.waiting = 0
        self._peak = self._entered = 0
        self._waited = self._paused = 0.0
        self._opens = self._mark = monotonic()
        self._spread = 0.0
        self._slots = asyncio.Semaphore(limit) if limit is not None else None
        self._rate, self._queue = rate, asyncio.Lock()
        self._random = rng or random.Random()  # noqa: S311 (spreads waits, guards nothing)

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Wait for a slot and hold it."""
        self._wait(1)
        try:
            await self._enter()
        finally:
            self._wait(-1)
        self.in_use += 1
        self._entered += 1
        self._peak = max(self._peak, self.in_use)
        try:
            yield
        finally:
            self.in_use -= 1
            if self._slots is not None:
                self._slots.release()

    def pause(self, seconds: float, spread: float | None = None) -> None:
        """Let nobody in for `seconds`, at least: a longer pause that is on stays. Who holds a slot keeps it.

        `spread`: the seconds behind it over which those who wait come back; None: as long as the pause, and at most
        `MAX_SPREAD`. Where the limiter has a rate, all that share it are paused.
        """
        now = monotonic()
        opens = now + max(seconds, 0.0)
        if opens > self._opens:
            self._paused += opens - max(self._opens, now)
            self._opens = opens
            self._spread = min(seconds, MAX_SPREAD) if spread is None else spread
        self._pause_rate(opens)

    def stats(self) -> LimiterStats:
        """What it did so far."""
        self._wait(0)
        return LimiterStats(
            name=self.name,
            limit=self.limit,
            in_use=self.in_use,
            waiting=self.waiting,
            peak=self._peak,
            entered=self._entered,
            waited=self._waited,
            paused=self._paused - max(self._opens - monotonic(), 0.0),
        )

    def _pause_rate(self, opens: float) -> None:
        left = opens - monotonic()
        if self._rate is not None and left > 0 and not self._rate.pause(left):
            asyncio.get_running_loop().call_later(AGAIN, self._pause_rate, opens)

    def _wait(self, more: int) -> None:
        now = monotonic()
        self._waited += self.waiting * (now - self._mark)
        self._mark = now
        self.waiting += more

    async def _enter(self) -> None:
        if self._slots is None:
            return await self._admitted()
        await self._slots.acquire()
        try:
            await self._admitted()
        except BaseException:
            self._slots.release()
            raise

    async def _admitted(self) -> None:
        """Wait out pause and rate."""
        await self._open()
        if self._rate is None:
            return
        async with self._queue:
            while (seconds := self._rate.take()) > 0:
                await asyncio.sleep(seconds)
                await self._open()

    async def _open(self) -> None:
        while (left := self._opens - monotonic()) > 0:  # noqa: ASYNC110 (only time ends a pause)
            await asyncio.sleep(left + self._random.uniform(0.0, self._spread))
