"""A limiter: so many at once for one resource, and it can say who waits."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

__all__ = ["Limiter"]


class Limiter:
    """Lets `limit` holders in at once, first come first served. Belongs to one event loop."""

    def __init__(self, name: str, limit: int | None) -> None:
        self.name = name
        self.limit = limit
        """None: no limit."""
        self.in_use = 0
        self.waiting = 0
        self._slots = asyncio.Semaphore(limit) if limit is not None else None

    @asynccontextmanager
    async def slot(self) -> AsyncGenerator[None]:
        """Wait for a slot and hold it."""
        if self._slots is not None:
            self.waiting += 1
            try:
                await self._slots.acquire()
            finally:
                self.waiting -= 1
        self.in_use += 1
        try:
            yield
        finally:
            self.in_use -= 1
            if self._slots is not None:
                self._slots.release()
