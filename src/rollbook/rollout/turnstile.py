"""Lets rollouts compute one after the other, so that the event loop is never late because many are ready at once.

Rendering, parsing and recording a turn take a millisecond. A thousand replies that come together would hold the loop
for a second: every timer, socket and heartbeat would be late. So each such stretch waits for its turn: one in each
pass of the loop, first come first served, and whatever else is due runs in between.
"""

from __future__ import annotations

import asyncio
from collections import deque

__all__ = ["Turnstile"]


class Turnstile:
    """Belongs to one event loop."""

    __slots__ = ("_free", "_waiting")

    def __init__(self) -> None:
        self._free = True
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for one's turn; what runs until the next ``await`` is it. Costs nothing where nobody else is ready."""
        loop = asyncio.get_running_loop()
        if self._free:
            self._free = False
            loop.call_soon(self._next)
            return
        mine: asyncio.Future[None] = loop.create_future()
        self._waiting.append(mine)
        await mine  # one that is cancelled is passed over, or lets its turn go by

    def _next(self) -> None:
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                asyncio.get_running_loop().call_soon(self._next)
                return
        self._free = True
