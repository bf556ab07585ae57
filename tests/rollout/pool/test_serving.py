"""The worker's side of its process: ready when it is open, one answer an order, and all is kept before it goes."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import msgspec
import pytest

from rollbook.errors import ModelError, StoreError
from rollbook.rollout import LoadedPolicy, Resources, RolloutSettings
from rollbook.rollout.pool import LocalWorker, OpenWorker, Order, serve
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
from rollbook.trace import MemorySink, Reason, Trace
from tests.rollout.made import SMOLLM, Engine, Said, Talk, never, says
from tests.rollout.pool.pooled import TASK

LONG = 1e6
"""Seconds: the process of the tests is not to be ended by force."""


class Parent:
    """The other end of the link."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._decoder = msgspec.msgpack.Decoder(FromWorker)

    def say(self, *messages: ToWorker) -> None:
        for message in messages:
            write(self._writer, message)

    async def hear(self) -> FromWorker | None:
        """The next message that is no sign of life; None where the worker hung up."""
        while isinstance(said := await read(self._reader, self._decoder), Beat):
            self.beat = said
        return said


class Opens:
    """Opens a worker whose policy says these things; `sink` is where its record goes."""

    def __init__(self, *said: Said, sink: MemorySink | None = None) -> None:
        self.engine = Engine(said)
        self.sink = sink or MemorySink()
        self.gate = asyncio.Event()
        self.specs: list[dict[str, Any]] = []

    def __call__(self, spec: dict[str, Any]) -> AbstractAsyncContextManager[LocalWorker]:
        self.specs.append(spec)
        return self._opened()

    @asynccontextmanager
    async def _opened(self) -> AsyncGenerator[LocalWorker]:
        await self.gate.wait()
        async with Resources() as resources:
            yield LocalWorker(
                make_env=Talk,
                loaded=LoadedPolicy(self.engine, SMOLLM.renderer),
                settings=RolloutSettings(cancelled_as=Reason.INTERRUPTED),
                sink=self.sink,
                resources=resources,
            )


def serving(opens: OpenWorker, parent: Callable[[Parent], Awaitable[None]]) -> int:
    """The exit code; `parent` is done when the worker hung up."""

    async def main() -> int:
        ours, theirs = socket.socketpair()
        reader, writer = await asyncio.open_connection(sock=ours)
        async with asyncio.timeout(20):
            served = asyncio.create_task(serve(theirs, opens, orphan_seconds=LONG))
            try:
                await parent(Parent(reader, writer))
                return await served
            finally:
                served.cancel()
                await asyncio.gather(served, return_exceptions=True)
                writer.close()
                await writer.wait_closed()

    return asyncio.run(main())


def order(member: int = 0) -> Order:
    return Order(group="g", task=TASK, member=member)


def test_it_is_ready_when_it_is_open_and_not_before() -> None:
    opens = Opens(says("x"))

    async def parent(link: Parent) -> None:
        link.say(Setup({"a": 1}))
        hearing = asyncio.create_task(link.hear())
        await asyncio.sleep(0.05)
        assert not hearing.done()
        assert opens.specs == [{"a": 1}]
        opens.gate.set()
        assert await hearing == Ready()
        link.say(Stop())
        assert await link.hear() is None

    assert serving(opens, parent) == 0


def opened(*said: Said, sink: MemorySink | None = None) -> Opens:
    made = Opens(*said, sink=sink)
    made.gate.set()
    return made


def test_each_order_has_one_answer_and_the_last_sign_of_life_counts_them_all() -> None:
    async def parent(link: Parent) -> None:
        link.say(Setup({}), *(Run(order(member)) for member in range(5)))
        assert await link.hear() == Ready()
        answers = [await link.hear() for _ in range(5)]
        assert sorted(each.result.rollout for each in answers if isinstance(each, Done)) == [f"g-{n}" for n in range(5)]
        link.say(Stop())
        assert await link.hear() is None
        assert link.beat.snapshot.endings == {Reason.FINAL_ANSWER: 5}

    assert serving(opened(says("x")), parent) == 0


@pytest.mark.parametrize(
    ("message", "reason"), [(Cancel("g-0"), Reason.CANCELLED), (Interrupt("g-0"), Reason.INTERRUPTED)], ids=str
)
def test_an_order_that_is_to_end_ends_as_it_was_told(message: ToWorker, reason: Reason) -> None:
    opens = opened(never)

    async def parent(link: Parent) -> None:
        link.say(Setup({}), Run(order()))
        assert await link.hear() == Ready()
        while not opens.engine.running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        link.say(Cancel("another"), Interrupt("another"), message)
        while opens.engine.running:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        link.say(Stop())
        while await link.hear() is not None:
            pass

    assert serving(opens, parent) == 0
    assert ended(opens.sink) == [reason]


def ended(sink: MemorySink) -> list[Reason]:
    return [trace.ending.reason for trace in sink.traces() if trace.ending is not None]


def test_what_runs_when_it_is_stopped_is_interrupted_and_kept() -> None:
    opens = opened(never)

    async def parent(link: Parent) -> None:
        link.say(Setup({}), *(Run(order(member)) for member in range(3)))
        while opens.engine.running < 3:  # noqa: ASYNC110
            await asyncio.sleep(0.005)
        link.say(Stop())
        while await link.hear() is not None:
            pass

    assert serving(opens, parent) == 0
    assert ended(opens.sink) == [Reason.INTERRUPTED] * 3


def test_what_is_no_setup_at_first_is_the_end() -> None:
    async def parent(link: Parent) -> None:
        link.say(Stop())
        assert await link.hear() is None

    assert serving(opened(says("x")), parent) == 0


def test_a_worker_that_cannot_open_says_why() -> None:
    @asynccontextmanager
    async def fails(spec: dict[str, Any]) -> AsyncGenerator[LocalWorker]:
        raise ModelError("no such model")
        yield

    async def parent(link: Parent) -> None:
        link.say(Setup({}))
        assert await link.hear() == Broken("UsageError", "no such model")
        assert await link.hear() is None

    assert serving(fails, parent) == 1


def test_what_stops_the_run_is_told_and_no_further_order_is_taken() -> None:
    class Full(MemorySink):
        def begin(self, trace: Trace) -> None:
            raise StoreError("no space")

    async def parent(link: Parent) -> None:
        link.say(Setup({}), Run(order()))
        assert await link.hear() == Ready()
        assert await link.hear() == Broken("StoreError", "no space")
        link.say(Run(order(1)))
        said = await link.hear()
        assert said in (None, Broken("StoreError", "no space"))

    assert serving(opened(says("x"), sink=Full()), parent) == 1
