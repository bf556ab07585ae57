"""The worker pool: several workers, the least busy of which takes the next order, and replacements for those that die.

Rules: a worker's death is told to each of its orders once; what it left behind is salvaged (sealed, read) before any
of them runs again; an order that comes to a worker that was dead before goes to another one, and that is no loss of the
order's; so many deaths in a row without a result between them are no accident and stop the run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence

from rollbook.envs.finishing import to_its_end
from rollbook.errors import RollbookError, UsageError, first_cause
from rollbook.rollout.pool.local_worker import DiedLoading, NotTaken, Result, Worker, WorkerLost
from rollbook.rollout.pool.orders import Order
from rollbook.rollout.snapshot import Snapshot, add_snapshots, gone

__all__ = ["Recover", "WorkerPool", "WorkersDie"]

Recover = Callable[[str, Sequence[Order]], Awaitable[Mapping[str, Result]]]
"""Given a dead worker's name and its orders: the results of those that it left a record of, by rollout."""

DEATHS = 3
"""Deaths in a row, for each worker, that stop a run."""


class WorkersDie(UsageError):
    """Workers die faster than they give results."""


class WorkerPool:
    """Workers side by side. `async with` starts and closes them."""

    def __init__(self, size: int, start: Callable[[int], Awaitable[Worker]], recover: Recover) -> None:
        """`start` makes the n-th worker, counted over replacements too."""
        self._size, self._start, self._recover = size, start, recover
        self._workers: list[Worker] = []
        self._started = 0
        self._deaths = 0
        self._gone = Snapshot()
        self._orders: dict[str, dict[str, Order]] = {}
        self._cancelled: set[str] = set()
        """Of the orders that wait for a worker, those that are to end."""
        self._without: set[str] = set()
        self._replacing: dict[str, asyncio.Task[Mapping[str, Result]]] = {}

    async def __aenter__(self) -> WorkerPool:
        try:
            async with asyncio.TaskGroup() as tasks:
                for _ in range(self._size):
                    tasks.create_task(self._add())
        except BaseExceptionGroup as group:
            await to_its_end(self.close())
            raise first_cause(group) from group
        except BaseException:
            await to_its_end(self.close())
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await to_its_end(self.close())

    @property
    def in_flight(self) -> int:
        """Orders that run, over all workers."""
        return sum(worker.in_flight for worker in self._workers)

    @property
    def workers(self) -> Sequence[Worker]:
        """Those that are there now."""
        return tuple(self._workers)

    async def run(self, order: Order) -> Result | None:
        """Carry an order out; None where its worker died and left no record of it. Raises what stops a run."""
        while self._workers or await self._waited(order, self._any_worker()):
            worker = min(self._workers, key=lambda each: each.in_flight)
            try:
                return await self._carried(worker, order)
            except NotTaken as gone:
                if not await self._waited(order, self._replaced(worker, gone)):
                    break
        return None

    def cancel(self, rollout: str) -> None:
        """End a rollout as ``cancelled``, wherever it runs."""
        if rollout in self._without:
            self._cancelled.add(rollout)
        for worker in self._workers:
            worker.cancel(rollout)

    def snapshot(self) -> Snapshot:
        """How things stand over all workers, those that are gone included."""
        return add_snapshots([self._gone, *(worker.snapshot() for worker in self._workers)])

    async def close(self) -> None:
        """Interrupt what runs, keep it, and end every worker."""
        for task in self._replacing.values():
            task.cancel()
        await asyncio.gather(*self._replacing.values(), return_exceptions=True)
        workers, self._workers = self._workers, []
        await asyncio.gather(*(worker.close() for worker in workers))
        self._gone = add_snapshots([self._gone, *(gone(worker.snapshot()) for worker in workers)])

    async def _carried(self, worker: Worker, order: Order) -> Result | None:
        """What a worker makes of an order; where it dies over it, what it left of it."""
        mine = self._orders.setdefault(worker.name, {})
        mine[order.rollout] = order
        try:
            result = await worker.run(order)
        except NotTaken:
            mine.pop(order.rollout, None)
            raise
        except WorkerLost as lost:
            return (await self._replaced(worker, lost)).get(order.rollout)
        finally:
            if worker.name not in self._replacing:
                mine.pop(order.rollout, None)
        self._deaths = 0
        return result

    async def _any_worker(self) -> None:
        """Returns when there is a worker again."""
        while not self._workers:
            replacing = [each for each in self._replacing.values() if not each.done()]
            if not replacing:
                for each in self._replacing.values():
                    each.result()  # why one could not be replaced
                raise WorkersDie("no worker is left")
            await asyncio.wait(replacing, return_when=asyncio.FIRST_COMPLETED)

    async def _waited(self, order: Order, until: Awaitable[object]) -> bool:
        """Wait for a worker; False where the order was cancelled meanwhile."""
        self._without.add(order.rollout)
        try:
            await until
            return order.rollout not in self._cancelled
        finally:
            self._cancelled.discard(order.rollout)
            self._without.discard(order.rollout)

    async def _add(self) -> None:
        number, self._started = self._started, self._started + 1
        self._workers.append(await self._start(number))

    async def _replaced(self, worker: Worker, lost: WorkerLost) -> Mapping[str, Result]:
        """What was salvaged of a dead worker; the first that asks does the work."""
        if worker.name not in self._replacing:
            self._replacing[worker.name] = asyncio.create_task(self._replace(worker, lost))
        return await asyncio.shield(self._replacing[worker.name])

    async def _replace(self, worker: Worker, lost: WorkerLost) -> Mapping[str, Result]:
        self._deaths += 1
        self._workers.remove(worker)
        await worker.close()
        self._gone = add_snapshots([self._gone, gone(worker.snapshot())])
        found = await self._recover(worker.name, tuple(self._orders.pop(worker.name, {}).values()))
        await self._take_its_place(lost)
        return found

    async def _take_its_place(self, cause: RollbookError) -> None:
        """Add a worker. One that dies while it loads is a death like any other, for the run went well before."""
        while True:
            if self._deaths > DEATHS * self._size:
                raise WorkersDie(f"workers died {self._deaths} times in a row, the last one so: {cause}")
            try:
                return await self._add()
            except DiedLoading as again:
                cause, self._deaths = again, self._deaths + 1
