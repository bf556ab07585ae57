"""The scheduler: keeps so many orders in flight, and carries out what the groups' books say.

Rules: orders that are ready go first, then the next group is asked for, so groups finish before others begin; a wait
(back-off, jitter) holds no slot; what ends is told at once, whatever else still runs; every order has a deadline, and
one that is overdue is given up, for a batch must not wait for what will never come. What fails, wherever it does, ends
the run at once, and the first that failed is what is raised.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

from rollbook.errors import RollbookError, boundary, first_cause
from rollbook.rewards import Outcome
from rollbook.rollout.pool.book import Actions, Closed, GroupBook
from rollbook.rollout.pool.group_scoring import GroupScores, GroupScoring
from rollbook.rollout.pool.local_worker import Result
from rollbook.rollout.pool.orders import Order
from rollbook.rollout.snapshot import Snapshot

__all__ = ["Executor", "Listener", "NextGroup", "Scheduler"]

NextGroup = Callable[[], Awaitable[GroupBook | None]]
"""Gives the next group, when it may begin; None: there is none any more."""

LATE_SECONDS = 5.0
"""How long the end waits for orders that were given up."""


class Executor(Protocol):
    """Who carries orders out."""

    async def run(self, order: Order) -> Result | None: ...

    def cancel(self, rollout: str) -> None: ...

    def snapshot(self) -> Snapshot: ...


class Listener(Protocol):
    """Told what happens, in the order in which it happens. What it raises stops the run."""

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        """An attempt ended; its disposition is what became of it. `late`: nobody waited for it any more."""
        ...

    def closed(self, closed: Closed) -> None:
        """A group closed."""
        ...


@dataclass(slots=True)
class _Ready:
    book: GroupBook
    order: Order


class Scheduler:
    """Runs groups. Use once."""

    def __init__(
        self,
        executor: Executor,
        listener: Listener,
        *,
        concurrency: int,
        order_seconds: float | None = None,
        group_seconds: float | None = None,
        score: GroupScoring | None = None,
        jitter: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`order_seconds`, `group_seconds`: deadlines of one order and of one group, None for no limit. `score`: scores
        groups that their books want scored as a whole; it holds no slot. `jitter`: gives the seconds that each of the
        first `concurrency` orders waits before it starts."""
        self._executor, self._listener = executor, listener
        self._slots = asyncio.Semaphore(concurrency)
        self._order_seconds, self._group_seconds, self._jitter = order_seconds, group_seconds, jitter
        self._jittered = concurrency
        self._ready: deque[_Ready] = deque()
        self._waker: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._open: set[GroupBook] = set()
        self._timers: dict[GroupBook, asyncio.TimerHandle] = {}
        self._delayed: set[asyncio.TimerHandle] = set()
        self._late: set[asyncio.Task[Result | None]] = set()
        self._score, self._scoring = score, set[asyncio.Task[None]]()
        self._asked: asyncio.Future[GroupBook | None] | None = None
        self._exhausted = False
        self._failed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self, next_group: NextGroup) -> None:
        """Run every group that `next_group` gives, to its close."""
        try:
            async with asyncio.TaskGroup() as tasks:
                watching = tasks.create_task(self._watch())
                await self._drive_all(next_group)
                watching.cancel()
        except BaseExceptionGroup as group:
            raise first_cause(group) from group
        finally:
            await self._end()
        if self._failed.done():  # over what came late
            self._failed.result()

    def abandon(self, group: str, rule: str) -> bool:
        """Give a whole group up, queued and running members together; False where it is not open."""
        for book in self._open:
            if book.plan.id == group:
                self._carry_out(book, book.abandon(rule))
                return True
        return False

    async def _watch(self) -> None:
        """Raises the first failure as soon as there is one."""
        await asyncio.wait((self._failed,))
        self._failed.result()

    async def _drive_all(self, next_group: NextGroup) -> None:
        async with asyncio.TaskGroup() as tasks:
            with self._keeping_failures():
                while True:
                    await self._slots.acquire()
                    ready = await self._next(next_group)
                    if ready is None:
                        break
                    tasks.create_task(self._drive(ready.book, ready.order))

    async def _next(self, next_group: NextGroup) -> _Ready | None:
        """The next order; None where nothing is left to do."""
        while True:
            if self._failed.done():
                self._failed.result()
            if self._ready:
                return self._ready.popleft()
            if self._exhausted and not self._open:
                return None
            if self._asked is None and not self._exhausted:
                self._asked = asyncio.ensure_future(next_group())
            await self._something(self._asked)
            if self._asked is not None and self._asked.done():
                book, self._asked = self._asked.result(), None
                self._exhausted = book is None
                if book is not None:
                    self._begin(book)

    async def _something(self, asked: asyncio.Future[GroupBook | None] | None) -> None:
        """Wait until there may be a next order."""
        self._waker = asyncio.get_running_loop().create_future()
        await asyncio.wait({self._waker, *(() if asked is None else (asked,))}, return_when=asyncio.FIRST_COMPLETED)

    def _wake(self) -> None:
        if not self._waker.done():
            self._waker.set_result(None)

    def _begin(self, book: GroupBook) -> None:
        self._open.add(book)
        if self._group_seconds is not None:
            self._timers[book] = asyncio.get_running_loop().call_later(self._group_seconds, self._expire, book)
        self._carry_out(book, book.begin())

    def _expire(self, book: GroupBook) -> None:
        with self._keeping_failures(), boundary("the scheduler", RollbookError):
            self._carry_out(book, book.expire())

    @contextmanager
    def _keeping_failures(self) -> Generator[None]:
        """What fails inside stops the run, and is what it raises where nothing failed before."""
        try:
            yield
        except RollbookError as error:
            if not self._failed.done():
                self._failed.set_exception(error)
                self._failed.exception()  # a run that is cancelled meanwhile raises it nowhere

    async def _drive(self, book: GroupBook, order: Order) -> None:
        """Carry out one order, and what follows from how it ended."""
        with self._keeping_failures():
            await self._to_its_end(book, order)

    async def _to_its_end(self, book: GroupBook, order: Order) -> None:
        work = asyncio.ensure_future(self._carried(book, order))
        try:
            done, _ = await asyncio.wait((work,), timeout=self._order_seconds)
        except asyncio.CancelledError:
            work.cancel()
            await asyncio.wait((work,))
            raise
        finally:
            self._slots.release()
        if done:
            self._ended(book, order, work.result())
            return
        self._late.add(work)
        work.add_done_callback(lambda work: self._came_late(book, order, work))
        self._carry_out(book, book.overdue(order))

    async def _carried(self, book: GroupBook, order: Order) -> Result | None:
        """Nobody is told of a cancellation before its order has started: whether it is still wanted is asked here."""
        return await self._executor.run(order) if book.wants(order) else None

    def _came_late(self, book: GroupBook, order: Order, work: asyncio.Task[Result | None]) -> None:
        self._late.discard(work)
        if not work.cancelled():
            with self._keeping_failures(), boundary("the scheduler", RollbookError):
                self._ended(book, order, work.result())

    def _ended(self, book: GroupBook, order: Order, result: Result | None) -> None:
        if result is None or result.outcome is None:
            self._carry_out(book, book.lost(order))
            return
        actions = book.ended(result.outcome, result.retries_left)
        self._listener.ended(actions.late or result.outcome, late=actions.late is not None)
        self._carry_out(book, actions)

    def _carry_out(self, book: GroupBook, actions: Actions) -> None:
        for rollout in actions.cancel:
            self._executor.cancel(rollout)
        for order, seconds in actions.orders:
            self._put(_Ready(book, order), seconds + self._start_jitter())
        if actions.score is not None:
            scoring = asyncio.create_task(self._score_whole(book, actions.score))
            self._scoring.add(scoring)
            scoring.add_done_callback(self._scoring.discard)
        if actions.closed is not None:
            self._open.discard(book)
            timer = self._timers.pop(book, None)
            if timer is not None:
                timer.cancel()
            self._listener.closed(actions.closed)
        self._wake()

    async def _score_whole(self, book: GroupBook, outcomes: Sequence[Outcome]) -> None:
        """Score a group as a whole, and close it."""
        with self._keeping_failures(), boundary("scoring a group", RollbookError):
            found = GroupScores() if self._score is None else await self._score(outcomes)
            self._carry_out(book, book.scored(found))

    def _start_jitter(self) -> float:
        if self._jittered < 1:
            return 0.0
        self._jittered -= 1
        return self._jitter()

    def _put(self, ready: _Ready, seconds: float) -> None:
        if seconds <= 0:
            self._ready.append(ready)
            return

        def put() -> None:
            self._delayed.discard(timer)
            self._ready.append(ready)
            self._wake()

        timer = asyncio.get_running_loop().call_later(seconds, put)
        self._delayed.add(timer)

    async def _end(self) -> None:
        """Nothing of ours is left behind."""
        if self._asked is not None:
            self._asked.cancel()
        for timer in (*self._timers.values(), *self._delayed):
            timer.cancel()
        if scoring := tuple(self._scoring):
            for task in scoring:
                task.cancel()
            await asyncio.wait(scoring)
        if self._late:
            await asyncio.wait(self._late, timeout=LATE_SECONDS)
        for work in tuple(self._late):
            work.cancel()
