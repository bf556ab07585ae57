"""Who samples from which weights, while somebody may change them: a gate that each piece of a generation goes through.

Rules. A piece is sampled from one version of the weights, the one that it is let in with; weights change only while
the gate is shut and no piece is inside. What becomes of a generation that meets a shut gate is the `PauseMode`: it
stands still (`keep`), it ends as aborted with what it has (`abort`), or it goes on to its end and the pause waits for
it (`wait`). Generations that begin meanwhile stand still in each mode.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from rollbook.policy.weights import PauseMode

__all__ = ["Aborted", "WeightGate"]


class Aborted(Exception):
    """The gate is shut and the generation is to end with what it has. Stays within the engine's client."""


class WeightGate:
    """The gate of one engine, in one event loop."""

    def __init__(self) -> None:
        self.version = 0
        """Of the weights that pieces are sampled from."""
        self._shut: PauseMode | None = None
        self._generations = self._pieces = 0
        self._changed = asyncio.Condition()

    @property
    def paused(self) -> bool:
        """True while the gate is shut."""
        return self._shut is not None

    async def opened(self) -> None:
        """Wait while the gate is shut."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._shut is None)

    @asynccontextmanager
    async def generation(self) -> AsyncGenerator[None]:
        """Around all pieces of one generation; waits while the gate is shut."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._shut is None)
            self._generations += 1
        try:
            yield
        finally:
            self._generations -= 1
            await self._tell()

    @asynccontextmanager
    async def piece(self) -> AsyncGenerator[int]:
        """Around one request to the engine, within `generation`; gives the version of its tokens. Waits while the gate
        is shut, or raises `Aborted`, as the pause says."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._shut is not PauseMode.KEEP)
            if self._shut is PauseMode.ABORT:
                raise Aborted
            self._pieces += 1
        try:
            yield self.version
        finally:
            self._pieces -= 1
            await self._tell()

    async def shut(self, mode: PauseMode) -> None:
        """Returns once no piece, and with `wait` no generation, is inside. Shutting it again changes the mode."""
        self._shut = mode
        async with self._changed:
            self._changed.notify_all()
            await self._changed.wait_for(
                lambda: not self._pieces and not (mode is PauseMode.WAIT and self._generations)
            )

    async def open(self) -> None:
        """Let everybody in again."""
        self._shut = None
        await self._tell()

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
