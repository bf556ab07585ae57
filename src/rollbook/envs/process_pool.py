"""Processes that serve calls: each has a socket to its parent, and serves one call at a time.

Rules: a call whose caller is gone is over, so its process is killed, whatever it does; a process whose parent is gone
ends itself. What crosses is pickled, between this program and itself only.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import socket
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from rollbook.errors import RollbookError, UsageError, boundary

__all__ = ["ProcessLost", "ProcessPool"]

COMMAND = ("-m", "rollbook.envs.process_server")
LENGTH = struct.Struct(">Q")


class ProcessLost(RollbookError):
    """The process that served a call died over it."""


class ProcessPool:
    """Belongs to one event loop."""

    def __init__(self, limit: int) -> None:
        """`limit`: so many at once."""
        self._slots = asyncio.Semaphore(limit)
        self._idle: list[_Server] = []
        self._busy: set[_Server] = set()

    async def call(self, call: Callable[[], Any]) -> Any:
        """Run it there. Raises what it raises, `UsageError` and `ProcessLost`."""
        with boundary("this call cannot be sent to another process", UsageError):
            data = pickle.dumps(call)
        async with self._slots:
            server = self._free()
            self._busy.add(server)
            try:
                answer = await server.ask(data)
            except BaseException:
                server.kill()
                raise
            finally:
                self._busy.discard(server)
            self._idle.append(server)
        worked, value = answer
        if worked:
            return value
        raise value

    def _free(self) -> _Server:
        """One that waits for work, or a new one. One that died while it waited died over no call."""
        while self._idle:
            server = self._idle.pop()
            if server.alive():
                return server
            server.kill()
        return _Server()

    def close(self) -> None:
        """Kill them all."""
        for server in (*self._idle, *self._busy):
            server.kill()
        self._idle.clear()


class _Server:
    """One process."""

    def __init__(self) -> None:
        self._link, theirs = socket.socketpair()
        self._link.setblocking(False)
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 (this very interpreter)
                [sys.executable, *COMMAND, str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path.cwd()), *filter(None, sys.path)])},
            )

    async def ask(self, data: bytes) -> tuple[bool, Any]:
        """Whether the call returned, and what it returned or raised."""
        loop = asyncio.get_running_loop()
        try:
            await loop.sock_sendall(self._link, LENGTH.pack(len(data)) + data)
            (length,) = LENGTH.unpack(await self._receive(LENGTH.size))
            answer = await self._receive(length)
        except ConnectionError as error:
            raise ProcessLost(f"the process that ran it died (exit code {self._process.wait()})") from error
        with boundary("what came back cannot be read", ProcessLost):
            return cast("tuple[bool, Any]", pickle.loads(answer))  # noqa: S301 (from our own process)

    async def _receive(self, size: int) -> bytes:
        loop, data = asyncio.get_running_loop(), bytearray()
        while len(data) < size:
            part = await loop.sock_recv(self._link, min(size - len(data), 1 << 20))
            if not part:
                raise ConnectionResetError
            data += part
        return bytes(data)

    def alive(self) -> bool:
        """False for one that has ended."""
        return self._process.poll() is None

    def kill(self) -> None:
        """End it now."""
        self._link.close()
        self._process.kill()
        self._process.wait()
