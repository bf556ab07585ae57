"""The worker's side of its process: orders come in over a socket, results go out.

Rules: readiness is said when the worker is open, not before; a rollout's result is said once; where the parent is gone,
everything is interrupted and kept, and a process that cannot come to its end then is ended by force, be its loop
blocked.
"""

from __future__ import annotations

import asyncio
import os
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any

import msgspec

from rollbook.errors import RollbookError, told
from rollbook.rollout.pool.local_worker import LocalWorker
from rollbook.rollout.pool.orders import Order
from rollbook.rollout.pool.wire import (
    Beat,
    Broken,
    Cancel,
    Done,
    FromWorker,
    Interrupt,
    Ready,
    Run,
    Setup,
    Stop,
    ToWorker,
    read,
    write,
)

__all__ = ["OpenWorker", "serve"]

OpenWorker = Callable[[dict[str, Any]], AbstractAsyncContextManager[LocalWorker]]
"""Makes the worker from the plain data that the parent sent."""

ORPHAN_SECONDS = 120.0
"""How long a worker without a parent may take to come to its end."""
BEAT_SECONDS = 0.5
PARENT_SECONDS = 2.0
"""How often it is looked whether the parent is there."""


async def serve(link: socket.socket, open_worker: OpenWorker) -> int:
    """Serve orders until told to stop; returns the exit code."""
    threading.Thread(target=_end_with, args=(os.getppid(),), name="parent", daemon=True).start()
    reader, writer = await asyncio.open_connection(sock=link)
    try:
        return await _Service(reader, writer).serve(open_worker)
    finally:
        with suppress(ConnectionError):
            writer.close()
            await writer.wait_closed()


class _Service:
    """One connection to the parent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = msgspec.msgpack.Decoder(ToWorker)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._broken: RollbookError | None = None

    async def serve(self, open_worker: OpenWorker) -> int:
        setup = await read(self._reader, self._decoder)
        if not isinstance(setup, Setup):
            return 0
        try:
            async with open_worker(setup.spec) as worker:
                self._say(Ready())
                beating = asyncio.create_task(self._beat(worker))
                try:
                    await self._take_orders(worker)
                finally:
                    beating.cancel()
                    await asyncio.gather(beating, return_exceptions=True)
                    await self._end(worker)
                    self._say(Beat(worker.snapshot()))
        except RollbookError as error:
            self._broken = self._broken or error
        if self._broken is None:
            return 0
        self._say(Broken(type(self._broken).__name__, told(self._broken)))
        with suppress(ConnectionError):
            await self._writer.drain()
        return 1

    async def _messages(self) -> AsyncIterator[ToWorker]:
        while self._broken is None:
            message = await read(self._reader, self._decoder)
            if message is None:
                _end_by_force_later()
                return
            yield message

    async def _take_orders(self, worker: LocalWorker) -> None:
        async for message in self._messages():
            match message:
                case Run(order):
                    task = asyncio.create_task(self._carry_out(worker, order))
                    self._tasks[order.rollout] = task
                    task.add_done_callback(lambda _, rollout=order.rollout: self._tasks.pop(rollout, None))
                    await asyncio.sleep(0)  # it must have begun when the next message cancels it
                case Cancel(rollout):
                    worker.cancel(rollout)
                case Interrupt(rollout):
                    if rollout in self._tasks:
                        self._tasks[rollout].cancel()
                case Stop():
                    return
                case Setup():
                    pass

    async def _carry_out(self, worker: LocalWorker, order: Order) -> None:
        try:
            self._say(Done(await worker.run(order)))
        except RollbookError as error:
            # What stops a whole run: the parent is told, and no further order is taken.
            self._broken = self._broken or error
            self._say(Broken(type(error).__name__, told(error)))

    async def _end(self, worker: LocalWorker) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await worker.close()

    async def _beat(self, worker: LocalWorker) -> None:
        while True:
            await asyncio.sleep(BEAT_SECONDS)
            self._say(Beat(worker.snapshot()))

    def _say(self, message: FromWorker) -> None:
        if not self._writer.is_closing():
            write(self._writer, message)


def _end_with(parent: int) -> None:
    """A thread's life: a blocked loop cannot see that the parent is gone."""
    while os.getppid() == parent:
        time.sleep(PARENT_SECONDS)
    _end_by_force_later()


def _end_by_force_later() -> None:
    timer = threading.Timer(ORPHAN_SECONDS, os._exit, (1,))
    timer.daemon = True
    timer.start()
