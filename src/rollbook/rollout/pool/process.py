"""A worker process, as its parent sees it.

Rules: it is ready when it says so, which it does once its policy answered; one that dies before is reported at once,
with its exit code and the last lines of its log; one that dies, or says nothing for too long, loses its orders
(`WorkerLost`), each exactly once. It runs in a session of its own, so Ctrl-C reaches the parent alone, and it ends by
itself where the parent is gone. Its end is the process's own, whoever else holds its socket or its output open, and
takes along what it left running in its group.
"""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import sys
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec

from rollbook.envs.finishing import to_its_end
from rollbook.errors import RecordError, RollbookError, UsageError
from rollbook.rollout.pool.local_worker import DiedLoading, NotTaken, Result, WorkerLost
from rollbook.rollout.pool.orders import Order
from rollbook.rollout.pool.patience import PATIENCE, Patience
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
from rollbook.rollout.snapshot import Snapshot, gone

__all__ = ["ProcessWorker"]

LAST_WORDS_SECONDS = 2.0
"""How long what a worker said last may take to be read, once it ended."""
LOG_LINES = 40


class ProcessWorker:
    """Start it with `start`."""

    def __init__(self, name: str, patience: Patience) -> None:
        self.name, self._patience = name, patience
        self._snapshot = Snapshot()
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._output: asyncio.ReadTransport | None = None
        self._waiting: dict[str, asyncio.Future[Result]] = {}
        self._ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: list[asyncio.Task[None]] = []
        self._log = deque[str](maxlen=LOG_LINES)
        self._heard = asyncio.get_running_loop().time()
        self._over = False
        """Nothing is heard of it any more."""
        self._gone: str | None = None

    @classmethod
    async def start(
        cls,
        name: str,
        command: Sequence[str],
        spec: Mapping[str, Any],
        *,
        patience: Patience = PATIENCE,
    ) -> ProcessWorker:
        """Start a process and wait until it takes orders. `command` gets the socket's descriptor as its last
        argument. Raises `DiedLoading` with the end of its log where it dies before."""
        worker = cls(name, patience)
        try:
            await worker._open(command, dict(spec))
        except BaseException:
            await to_its_end(worker.close())
            raise
        return worker

    @property
    def in_flight(self) -> int:
        return len(self._waiting)

    @property
    def alive(self) -> bool:
        """False once it is gone."""
        return self._gone is None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def run(self, order: Order) -> Result:
        if self._over:
            await asyncio.wait(self._tasks[:1])  # how it ended is known in a moment
            raise NotTaken(self._gone or f"worker {self.name} is closed")
        future = self._waiting[order.rollout] = asyncio.get_running_loop().create_future()
        self._say(Run(order))
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            self._say(Interrupt(order.rollout))
            raise
        finally:
            self._waiting.pop(order.rollout, None)

    def snapshot(self) -> Snapshot:
        return self._snapshot if self.alive else gone(self._snapshot)

    def cancel(self, rollout: str) -> None:
        if rollout in self._waiting:
            self._say(Cancel(rollout))

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self._say(Stop())
            if self._writer is None:
                process.kill()
            await _ended(process, self._patience.stop)
            if self._tasks:
                await asyncio.wait(self._tasks[:2], timeout=LAST_WORDS_SECONDS)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if self._writer is not None:
            self._writer.close()
        if self._output is not None:
            self._output.close()

    def kill(self) -> None:
        """End the process at once; its orders are lost."""
        if self._process is not None and self._process.returncode is None:
            self._process.kill()

    async def _open(self, command: Sequence[str], spec: dict[str, Any]) -> None:
        ours, theirs = socket.socketpair()
        printed, prints = os.pipe()  # asyncio's own would make its end wait for everybody who holds it
        with theirs, os.fdopen(prints, "wb"):
            creating = asyncio.ensure_future(_create(command, theirs.fileno(), prints))
            try:
                process = await asyncio.shield(creating)
            except asyncio.CancelledError:
                self._process = await creating  # or nobody would know of it
                ours.close()
                os.close(printed)
                raise
            self._process = process
        self._output, output = await _reading(printed)
        reader, self._writer = await asyncio.open_connection(sock=ours)
        heard = asyncio.create_task(self._listen(reader, process)), asyncio.create_task(self._keep_log(output))
        self._tasks = [*heard, asyncio.create_task(self._bury(process, heard)), asyncio.create_task(self._watch())]
        self._say(Setup(spec))
        patience = self._patience.start
        try:
            async with asyncio.timeout(patience):
                await asyncio.shield(self._ready)
        except TimeoutError as error:
            raise UsageError(f"worker {self.name} was not ready within {patience:g} s{self._tail()}") from error

    async def _listen(self, reader: asyncio.StreamReader, process: asyncio.subprocess.Process) -> None:
        decoder = msgspec.msgpack.Decoder(FromWorker)
        broken: RollbookError | None = None
        while (message := cast("FromWorker | None", await self._next(reader, decoder))) is not None:
            self._heard = asyncio.get_running_loop().time()
            match message:
                case Ready():
                    if not self._ready.done():
                        self._ready.set_result(None)
                case Done(result):
                    self._answer(result)
                case Beat(snapshot):
                    self._snapshot = snapshot
                case Broken():
                    broken = broken or message.error(self.name)
                    self._fail(broken)
        self._over = True
        code = await self._exit_code(process)
        await asyncio.sleep(0)  # the last lines of the log
        self._gone = f"worker {self.name} {_how(code)}{self._tail()}"
        self._fail(broken or WorkerLost(self._gone))

    async def _next(self, reader: asyncio.StreamReader, decoder: msgspec.msgpack.Decoder[FromWorker]) -> Any:
        """The next message; None behind the last one, and where something else than a worker speaks."""
        try:
            return await read(reader, decoder)
        except RecordError as error:
            self._log.append(f"({error}; it was killed)")
            self.kill()
            return None

    async def _exit_code(self, process: asyncio.subprocess.Process) -> int:
        """Of a worker that has said its last: what it keeps is kept."""
        try:
            async with asyncio.timeout(self._patience.exit):
                return await process.wait()
        except TimeoutError:
            self._log.append(f"(it was done and did not exit within {self._patience.exit:g} s: it was killed)")
            with suppress(ProcessLookupError):
                process.kill()
            return await process.wait()

    async def _bury(self, process: asyncio.subprocess.Process, heard: Iterable[asyncio.Task[None]]) -> None:
        """Once it is gone, nobody speaks for it any more."""
        await process.wait()
        self._over = True
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        await asyncio.wait(heard, timeout=LAST_WORDS_SECONDS)
        if self._writer is not None:
            self._writer.close()

    def _answer(self, result: Result) -> None:
        future = self._waiting.get(result.rollout)
        if future is not None and not future.done():
            future.set_result(result)

    def _fail(self, error: RollbookError) -> None:
        if not self._ready.done():
            self._ready.set_exception(DiedLoading(str(error)) if isinstance(error, WorkerLost) else error)
            self._ready.exception()  # whoever started it may be gone
        for future in list(self._waiting.values()):
            if not future.done():
                future.set_exception(error)

    async def _keep_log(self, output: asyncio.StreamReader) -> None:
        """What the worker prints goes to our stderr, and its last lines are kept for the report of its death."""
        while line := await _line(output):
            text = line.decode("utf-8", "replace")
            self._log.append(text.rstrip("\n"))
            with suppress(BrokenPipeError):  # a worker that nobody reads any more must not stand still
                sys.stderr.write(text)

    async def _watch(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._patience.silent / 10)
            if self._ready.done() and loop.time() - self._heard > self._patience.silent:
                self._log.append(f"(it said nothing for {self._patience.silent:g} s and was killed)")
                self.kill()

    def _say(self, message: ToWorker) -> None:
        if self._writer is not None and not self._writer.is_closing():
            with suppress(ConnectionError):
                write(self._writer, message)

    def _tail(self) -> str:
        return "".join(f"\n  {line}" for line in self._log)


async def _reading(descriptor: int) -> tuple[asyncio.ReadTransport, asyncio.StreamReader]:
    reader = asyncio.StreamReader()
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(descriptor, "rb")
    )
    return transport, reader


async def _create(command: Sequence[str], descriptor: int, output: int) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *command,
        str(descriptor),
        pass_fds=(descriptor,),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=output,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def _line(stream: asyncio.StreamReader) -> bytes:
    try:
        return await stream.readline()
    except ValueError:  # longer than the stream's limit
        return await stream.read(1 << 16)


async def _ended(process: asyncio.subprocess.Process, patience: float) -> None:
    """Wait for the end that it was asked for; then ask harder."""
    for seconds, last in ((patience, signal.SIGTERM), (5.0, signal.SIGKILL), (None, None)):
        try:
            async with asyncio.timeout(seconds):
                await process.wait()
                return
        except TimeoutError:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, last or signal.SIGKILL)


def _how(code: int) -> str:
    if code >= 0:
        return f"exited with code {code}"
    named = {each.value: each.name for each in signal.Signals}
    return f"was killed by {named.get(-code, f'signal {-code}')}"
