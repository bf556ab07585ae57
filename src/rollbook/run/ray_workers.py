"""Workers on other machines: Ray actors that run the worker of a worker process. Needs the extra ``ray``, so it is
imported when it is asked for, and is the only module that imports Ray.

Rules: Ray places the actors (spread over the nodes) and tells of their death; everything else is the pool's. What
crosses is MessagePack of the messages that worker processes get, never a pickle of an object of ours, and no exception.
An actor that died, cannot be reached, or says nothing for too long is lost with all its orders and is killed, so that
it cannot come back; it is never restarted by Ray: the worker pool replaces it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from rollbook.envs.finishing import to_its_end
from rollbook.errors import RollbookError, UsageError, boundary
from rollbook.rollout.pool import LocalWorker, NotTaken, Order, Result, WorkerLost
from rollbook.rollout.pool.patience import BEAT_SECONDS, PATIENCE, Patience
from rollbook.rollout.pool.wire import Beat, Broken, Done, FromWorker, Ready
from rollbook.rollout.snapshot import Snapshot, gone
from rollbook.run.worker import open_worker

try:
    import ray  # pyright: ignore[reportMissingModuleSource] (typings/ has what is used)
    from ray.actor import ActorHandle  # pyright: ignore[reportMissingModuleSource]
    from ray.exceptions import RayError  # pyright: ignore[reportMissingModuleSource]
except ModuleNotFoundError as missing:
    if missing.name != "ray":
        raise
    raise ModuleNotFoundError(
        "a Ray cluster needs the extra ray: run pip install '.[ray]' in Rollbook's checkout", name="ray"
    ) from missing

__all__ = ["RayWorker", "connected"]

PLACINGS = 3
"""How often a worker is placed that is lost before it is ready: a cluster goes on placing actors on a node that died
until it has noticed."""
PLACING_SECONDS = 2.0
"""Between two such attempts."""
AT_ONCE = 1 << 16
"""Calls of one actor at once: more than orders of any worker."""

_encoder = msgspec.msgpack.Encoder()
_messages = msgspec.msgpack.Decoder(FromWorker)
_orders = msgspec.msgpack.Decoder(Order)


@contextmanager
def connected(address: str) -> Generator[Callable[[str, dict[str, Any]], Awaitable[RayWorker]]]:
    """Starts workers on the cluster at `address` (``auto``: the one that this machine belongs to). A connection
    that this process has already is used, and stays. Raises `UsageError` where there is no such cluster."""
    if ray.is_initialized():
        yield RayWorker.start
        return
    try:
        ray.init(address=address, configure_logging=False, log_to_driver=False)
    except (OSError, ValueError, RuntimeError, RayError) as error:
        raise UsageError(
            f"no Ray cluster takes this run at '{address}' ({error}); start one (ray start --head), give the address "
            "of one that runs (--ray HOST:PORT), and have the same Ray and Python here as there"
        ) from error
    try:
        yield RayWorker.start
    finally:
        ray.shutdown()


class WorkerActor:
    """The actor: a worker behind calls that take and give bytes."""

    def __init__(self) -> None:
        self._running: dict[str, asyncio.Task[Result]] = {}
        self._stop = asyncio.Event()
        self._worker: asyncio.Future[LocalWorker] | None = None
        self._serving: asyncio.Task[bytes] | None = None

    async def open(self, spec: bytes) -> bytes:
        """Make the worker; `Ready`, or `Broken`."""
        self._worker = asyncio.get_running_loop().create_future()
        self._serving = asyncio.create_task(self._serve(msgspec.msgpack.decode(spec)))
        await asyncio.wait((self._worker, self._serving), return_when=asyncio.FIRST_COMPLETED)
        return _encoder.encode(Ready()) if self._worker.done() else self._serving.result()

    async def run(self, order: bytes) -> bytes:
        """Carry out an order; `Done`, or the `Broken` that stops the run."""
        work = _orders.decode(order)
        task = self._running[work.rollout] = asyncio.create_task(self._open_worker.run(work))
        try:
            await asyncio.wait((task,))
            if task.cancelled():
                return _encoder.encode(Done(Result(rollout=work.rollout, outcome=None)))
            with boundary(f"worker {self._open_worker.name}", RollbookError):
                return _encoder.encode(Done(task.result()))
        except RollbookError as error:
            return _encoder.encode(Broken.of(error))
        finally:
            self._running.pop(work.rollout, None)

    async def cancel(self, rollout: str) -> None:
        """End a rollout as ``cancelled``."""
        self._open_worker.cancel(rollout)

    async def interrupt(self, rollout: str) -> None:
        """End a rollout as the settings say of a run that stops."""
        if rollout in self._running:
            self._running[rollout].cancel()

    async def beat(self) -> bytes:
        """A sign of life."""
        return _encoder.encode(Beat(self._open_worker.snapshot()))

    async def close(self) -> bytes:
        """Interrupt what runs and keep it; `Ready` where all was kept, or `Broken`."""
        self._stop.set()
        return _encoder.encode(Ready()) if self._serving is None else await self._serving

    @property
    def _open_worker(self) -> LocalWorker:
        if self._worker is None:
            raise WorkerLost("the worker was not opened")
        return self._worker.result()

    async def _serve(self, spec: dict[str, Any]) -> bytes:
        """The life of the worker, all of it in one task."""
        try:
            with boundary("the worker", RollbookError):
                async with open_worker(spec) as worker:
                    if self._worker is not None:
                        self._worker.set_result(worker)
                    await self._stop.wait()
                    for task in self._running.values():
                        task.cancel()
                    await worker.close()
        except RollbookError as error:
            return _encoder.encode(Broken.of(error))
        return _encoder.encode(Ready())


def _placed() -> ActorHandle:
    made = ray.remote(WorkerActor).options(
        max_concurrency=AT_ONCE, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
    )
    return made.remote()


class RayWorker:
    """A `Worker` that is a Ray actor. Start it with `start`."""

    def __init__(self, name: str, actor: ActorHandle, patience: Patience) -> None:
        self.name, self._patience = name, patience
        self._actor = actor
        self._orders = 0
        self._snapshot = Snapshot()
        self._lost: str | None = None
        self._closed = False
        self._beating: asyncio.Task[None] | None = None

    @classmethod
    async def start(cls, name: str, spec: dict[str, Any], *, patience: Patience = PATIENCE) -> RayWorker:
        """Place an actor and wait until it takes orders. `spec`: of `open_worker`. Raises `UsageError`, and what the
        actor says that stops a run."""
        left = PLACINGS
        while True:
            worker, left = cls(name, _placed(), patience), left - 1
            try:
                await worker._open(spec)
            except BaseException as error:
                await to_its_end(worker.close())
                if not isinstance(error, WorkerLost):
                    raise
                if not left:
                    raise UsageError(f"{error} (of {PLACINGS} actors none lived until it was ready)") from error
                await asyncio.sleep(PLACING_SECONDS)
            else:
                return worker

    @property
    def in_flight(self) -> int:
        return self._orders

    async def run(self, order: Order) -> Result:
        if self._lost is not None:
            raise NotTaken(self._lost)
        self._orders += 1
        try:
            said = await self._heard(self._actor.run.remote(_encoder.encode(order)))
        except asyncio.CancelledError:
            self._actor.interrupt.remote(order.rollout)
            raise
        finally:
            self._orders -= 1
        if isinstance(said, Done):
            return said.result
        raise self._broken(said)

    def cancel(self, rollout: str) -> None:
        if self._lost is None:
            self._actor.cancel.remote(rollout)

    def snapshot(self) -> Snapshot:
        return self._snapshot if self._lost is None and not self._closed else gone(self._snapshot)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._beating is not None:
            self._beating.cancel()
            await asyncio.gather(self._beating, return_exceptions=True)
        with suppress(WorkerLost, TimeoutError):
            async with asyncio.timeout(self._patience.stop if self._lost is None else 0):
                said = await self._heard(self._actor.close.remote())
                if isinstance(said, Broken):
                    sys.stderr.write(f"worker {self.name} did not close well: {said.text}\n")
                if self._beating is not None:  # what it did since its last sign of life counts too
                    self._take(await self._heard(self._actor.beat.remote()))
        ray.kill(self._actor, no_restart=True)

    async def _open(self, spec: dict[str, Any]) -> None:
        patience = self._patience.start
        opening = self._actor.open.remote(_encoder.encode(spec))
        try:
            async with asyncio.timeout(patience):
                said = await self._heard(opening)
        except TimeoutError as error:
            raise UsageError(
                f"worker {self.name} was not ready within {patience:g} s: has the cluster a free CPU for each?"
            ) from error
        if not isinstance(said, Ready):
            raise self._broken(said)
        self._beating = asyncio.create_task(self._beat())

    async def _beat(self) -> None:
        while self._lost is None:
            await asyncio.sleep(BEAT_SECONDS)
            try:
                async with asyncio.timeout(self._patience.silent):
                    said = await self._heard(self._actor.beat.remote())
            except TimeoutError:
                self._lost = f"worker {self.name} said nothing for {self._patience.silent:g} s"
                ray.kill(self._actor, no_restart=True)
            except WorkerLost:
                return
            else:
                self._take(said)

    def _take(self, said: FromWorker) -> None:
        if isinstance(said, Beat):
            self._snapshot = said.snapshot

    async def _heard(self, asked: ray.ObjectRef[bytes]) -> FromWorker:
        """What the actor answers. Raises `WorkerLost`."""
        try:
            return _messages.decode(await asked)
        except RayError as error:
            self._lost = self._lost or f"worker {self.name} is lost: {error}"
            raise WorkerLost(self._lost) from error

    def _broken(self, said: FromWorker) -> RollbookError:
        if isinstance(said, Broken):
            return said.error(self.name)
        return RollbookError(f"worker {self.name} answers with {type(said).__name__}")
