"""The fake engine server: an HTTP server in a thread of this process, with an event loop of its own.

Several may run at once. What tests need beside HTTP (the log, replacing the weights) is there as methods that may be
called from any thread.
"""

from __future__ import annotations

import asyncio
import socket
import struct
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeVar

from aiohttp import web

from rollbook.errors import UsageError
from rollbook.policy.testing.ask import Ask, Reply, Request, Transport
from rollbook.policy.testing.faults import Dialect, FaultPlan
from rollbook.policy.testing.front import Front
from rollbook.policy.testing.latency import Latency
from rollbook.policy.testing.llamacpp import LlamacppSpeech
from rollbook.policy.testing.log import LogEntry
from rollbook.policy.testing.model import TinyModel
from rollbook.policy.testing.openai import OpenaiSpeech
from rollbook.policy.testing.openai_wire import TextScript, echo
from rollbook.policy.testing.scheduler import Scheduler
from rollbook.policy.testing.script import Script, Scripted
from rollbook.policy.testing.sglang import SglangSpeech
from rollbook.policy.testing.shape import EngineShape
from rollbook.policy.testing.speech import Engine, Settings, Speech
from rollbook.policy.testing.vllm import VllmSpeech
from rollbook.policy.weights import PauseMode
from rollbook.trace.call import LogprobKind

__all__ = ["FakeEngine", "Server", "Wrap", "serve"]

Wrap = Callable[[Callable[[], asyncio.Protocol]], Callable[[], asyncio.Protocol]]
"""What makes a connection's protocol, out of what makes the fake's own."""
_Type = TypeVar("_Type")
_SPEECHES: dict[Dialect, Callable[[Engine], Speech]] = {
    Dialect.VLLM: VllmSpeech,
    Dialect.SGLANG: SglangSpeech,
    Dialect.LLAMACPP: LlamacppSpeech,
    Dialect.OPENAI: OpenaiSpeech,
}
_KINDS = {Dialect.SGLANG: LogprobKind.TEMPERATURE}
"""What a dialect's server reports by default, where that is not raw."""
_BLOCKS = {Dialect.VLLM: 16}
"""Tokens of a block of the prefix cache, where that is not one."""
MAX_BODY = 64 << 20
"""Bytes of a request's body."""
KEEP_ALIVE = 3600.0
"""Seconds that an idle connection stays open."""
BACKLOG = 16_384
"""Connections that may wait to be accepted."""


@dataclass(frozen=True, slots=True)
class Server:
    """What listens."""

    port: int
    connections: Callable[[], int]
    """How many are open."""


class FakeEngine:
    """``with FakeEngine(Dialect.VLLM) as engine: engine.url``."""

    def __init__(
        self,
        dialect: Dialect,
        *,
        script: Script | None = None,
        text_script: TextScript = echo,
        faults: FaultPlan | None = None,
        latency: Latency | None = None,
        shape: EngineShape | None = None,
        port: int = 0,
    ) -> None:
        """`script`: which ids come; None: a model of hashes samples them. `port`: 0 for any that is free."""
        shape = shape or EngineShape()
        kind = shape.logprob_kind or _KINDS.get(dialect, LogprobKind.RAW)
        settings = Settings(dialect=dialect, shape=shape, kind=kind, text_script=text_script)
        plan = faults or FaultPlan()
        plan.check(dialect)
        scheduler = Scheduler(
            model=TinyModel(shape.vocabulary, shape.seed),
            decode=shape.decode,
            script=None if script is None else Scripted(script, shape.stop_ids[0]),
            latency=latency or Latency(),
            block=_BLOCKS.get(dialect, 1),
            deaf=dialect is Dialect.LLAMACPP,
        )
        engine = Engine(settings, scheduler)
        self._front = Front(engine, _SPEECHES[dialect](engine), plan)
        self._port = port
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended = asyncio.Event()
        self._connections: Callable[[], int] = lambda: 0
        self.url = ""
        """Where it listens, known once it runs."""

    @property
    def front(self) -> Front:
        """Answers requests without a socket."""
        return self._front

    @property
    def log(self) -> list[LogEntry]:
        """A copy of the log: one entry for each generation request so far."""
        return [*self._front.log]

    @property
    def running(self) -> int:
        """Generations that are under way."""
        return self._front.engine.scheduler.running

    @property
    def connections(self) -> int:
        """Open connections of clients."""
        return self._connections()

    def __enter__(self) -> FakeEngine:
        started = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(started,), name="fake engine", daemon=True)
        self._thread.start()
        started.wait()
        if not self.url:
            self._thread.join()
            raise UsageError(f"the fake engine cannot listen on port {self._port}: choose another, or 0")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._loop is not None and self._thread is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
            self._thread.join()

    def update(self, label: str) -> None:
        """Replace the weights at this moment; what is generated from now on has the version `label`."""
        self._do(self._front.engine.scheduler.update, label)

    def pause(self, how: PauseMode) -> None:
        """As the dialect's own route."""
        vllm = self._front.engine.settings.dialect is Dialect.VLLM
        self._wait(self._front.engine.scheduler.pause(how, refuse=vllm and how is not PauseMode.KEEP))

    def resume(self) -> None:
        """As the dialect's own route."""
        self._do(self._front.engine.scheduler.resume)

    def abort(self, session: str) -> None:
        """End what runs for `session`; its requests return what they have."""

        def mine(ask: Ask) -> bool:
            return ask.session == session

        self._do(self._front.engine.scheduler.abort, mine)

    def reset(self) -> None:
        """Forget log, counts, caches and weights."""
        self._do(self._front.reset)

    def _run(self, started: threading.Event) -> None:
        try:
            asyncio.run(self._serve(started))
        finally:
            started.set()

    async def _serve(self, started: threading.Event) -> None:
        self._loop = asyncio.get_running_loop()
        with suppress(OSError):
            async with serve(self._front, self._port) as server:
                self._connections = server.connections
                self.url = f"http://127.0.0.1:{server.port}"
                started.set()
                await self._ended.wait()

    def _do(self, work: Callable[..., Any], *arguments: Any) -> None:
        async def call() -> None:
            work(*arguments)

        self._wait(call())

    def _wait(self, work: Coroutine[Any, Any, _Type]) -> _Type:
        if self._loop is None:
            work.close()
            raise UsageError("the fake engine does not run: use it in a with statement")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@asynccontextmanager
async def serve(front: Front, port: int, wrap: Wrap | None = None) -> AsyncGenerator[Server]:
    """Listen on the loopback. `wrap`: stands before the fake. Raises `OSError`: the port is taken."""

    async def handle(request: web.Request) -> web.StreamResponse:
        body = await request.read()
        headers = {name.lower(): value for name, value in request.headers.items()}
        asked = Request(request.method, request.path, dict(request.query), headers, body)
        return await _send(request, await front(asked))

    application = web.Application(client_max_size=MAX_BODY)
    application.router.add_route("*", "/{path:.*}", handle)
    runner = web.AppRunner(
        application, handler_cancellation=True, access_log=None, shutdown_timeout=0.1, keepalive_timeout=KEEP_ALIVE
    )
    await runner.setup()
    behind = runner.server
    assert behind is not None
    make = behind if wrap is None else wrap(behind)
    try:
        listener = await asyncio.get_running_loop().create_server(make, "127.0.0.1", port, backlog=BACKLOG)
        try:
            yield Server(listener.sockets[0].getsockname()[1], lambda: len(behind.connections))
        finally:
            listener.close()
    finally:
        await runner.cleanup()


async def _send(request: web.Request, reply: Reply) -> web.StreamResponse:
    if reply.transport is Transport.RESET:
        _reset(request.transport)
        return web.Response()
    headers = {"Content-Type": "application/json", **reply.headers}
    if reply.transport is Transport.WHOLE:
        return web.Response(body=reply.body, status=reply.status, headers=headers)
    response = web.StreamResponse(status=reply.status, headers=headers)
    response.content_length = len(reply.body)
    await response.prepare(request)
    await response.write(reply.body[: len(reply.body) // 2])
    if request.transport is not None:
        request.transport.close()
    return response


def _reset(transport: asyncio.Transport | None) -> None:
    """Close with a reset instead of an end."""
    if transport is not None:
        link: socket.socket | None = transport.get_extra_info("socket")
        if link is not None:
            link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()
