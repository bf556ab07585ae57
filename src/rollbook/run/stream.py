"""Rollouts beside a trainer: groups run all the time, and the trainer takes each as it closes.

Rules. First finished, first handed out. Groups that are open or wait are never more than the queue's size: where the
trainer is slow, no further group begins. What a group is worth is recorded before it is handed out, so nothing is
trained twice, whatever dies when: a group that was handed out is never handed out again, even where the trainer died
before it learned from it; one that waited, or was still open, comes again from a resumed stream. Time that the trainer
waits, and time that groups wait for it, is kept here and is no time of any rollout.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Unpack

from rollbook.errors import ConfigError, UsageError
from rollbook.policy.weights import PauseMode, WeightControl
from rollbook.rollout.pool import Executor, GroupBook, Order, Result, Scheduler
from rollbook.rollout.snapshot import Snapshot
from rollbook.rollout.staleness import StalenessBound
from rollbook.run.config import RunConfig
from rollbook.run.group_queue import ClosedGroup, GroupQueue, StreamStats
from rollbook.run.live_run import LiveRun, RunOptions, RunRequest, open_live_run
from rollbook.run.resume import StreamSettings, keep_stream
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Annotation
from rollbook.trace.facts import Staleness, stalenesses

__all__ = ["ClosedGroup", "RolloutStream", "StreamStats", "open_stream"]


class RolloutStream(AsyncIterator[ClosedGroup]):
    """Groups as they close, and the trainer's version. Made by `open_stream`; for one trainer."""

    def __init__(
        self,
        queue: GroupQueue,
        scheduler: Scheduler,
        running: asyncio.Task[None],
        control: WeightControl | None,
        writer: RunWriter,
    ) -> None:
        self._queue, self._scheduler, self._running, self._control = queue, scheduler, running, control
        self._writer = writer
        running.add_done_callback(lambda _: queue.changed.set())
        self.told = False
        """Whoever asks for groups knows that the stream is over, or why it failed."""

    @property
    def version(self) -> int:
        """The trainer's policy version."""
        return self._queue.version

    def stats(self) -> StreamStats:
        """How the stream has fared since it was opened."""
        return self._queue.stats()

    async def update(self, weights: Path, version: int, *, mode: PauseMode = PauseMode.KEEP) -> None:
        """Give the engine new weights, a folder that it sees, and go on with them as `version`. Rollouts that are in
        flight go on as `mode` says and then hold tokens of several versions.

        Raises `UsageError` and `RolloutFailure`; where that happens behind the pause, the engine stays paused, for
        nobody knows which weights it holds.
        """
        if self._control is None:
            raise UsageError("this stream has no control over the engine's weights: open it with control=...")
        self._check(version)
        await self._control.pause(mode)
        await self._control.update(weights, version)
        self.advance(version)
        await self._control.resume()

    def advance(self, version: int) -> None:
        """The trainer is at `version` now, and somebody else has given the engine its weights. What cannot fit the
        bound any more is dropped. Raises `UsageError` for a version that is not later."""
        self._check(version)
        for group, rule in self._queue.advance(version).items():
            self._scheduler.abandon(group, rule)

    async def batch(self, groups: int) -> list[ClosedGroup]:
        """So many groups at once; fewer at the stream's end, and none behind it. All of them are taken in one moment:
        no further group begins before the caller waits for something.

        Raises `ConfigError` where the queue never holds so many, and what stopped the stream.
        """
        if not 1 <= groups <= self._queue.size:
            raise ConfigError(f"a queue of {self._queue.size} groups never holds {groups} at once")
        while self._queue.ready < groups and not self._running.done():
            await self._change()
        taken: list[ClosedGroup] = []
        while len(taken) < groups and (group := self._queue.take()) is not None:
            taken.append(group)
        if not taken:
            self._over()
        return taken

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        """Keep what the trainer says of rollouts, in the run's record."""
        self._writer.annotate(annotations)

    def _over(self) -> None:
        """Whoever asks is told that the stream is over; raises what stopped it."""
        self.told = True
        if not self._running.cancelled():
            self._running.result()

    async def _change(self) -> None:
        """Wait until something closed, was taken or is late."""
        self._queue.changed.clear()
        since = time.monotonic()
        try:
            await self._queue.changed.wait()
        finally:
            self._queue.waited += time.monotonic() - since

    def _check(self, version: int) -> None:
        if version <= self.version:
            raise UsageError(f"the trainer is at version {self.version}; {version} is no later one")

    def __aiter__(self) -> RolloutStream:
        return self

    async def __anext__(self) -> ClosedGroup:
        while True:
            group = self._queue.take()
            if group is not None:
                return group
            if self._running.done():
                self._over()
                raise StopAsyncIteration
            await self._change()


class _Watched(Executor):
    """The executor, and the queue that is told what runs."""

    def __init__(self, executor: Executor, queue: GroupQueue) -> None:
        self._executor, self._queue = executor, queue

    async def run(self, order: Order) -> Result | None:
        self._queue.started(order.rollout)
        try:
            return await self._executor.run(order)
        finally:
            self._queue.stopped(order.rollout)

    def cancel(self, rollout: str) -> None:
        self._executor.cancel(rollout)

    def snapshot(self) -> Snapshot:
        return self._executor.snapshot()


@asynccontextmanager
async def open_stream(
    config: RunConfig,
    folder: Path | str,
    *,
    queue: int = 16,
    bound: StalenessBound | None = None,
    rounds: int | None = 1,
    version: int = 0,
    control: WeightControl | None = None,
    **options: Unpack[RunOptions],
) -> AsyncGenerator[RolloutStream]:
    """Run a configuration into `folder` while a trainer takes its groups.

    `queue`: the most groups that run or wait to be taken. `bound`: the staleness that is allowed, None for any.
    `rounds`: how often the task list is gone through, each time with draws of its own; None: for ever. `version`: the
    trainer's, to begin with. `control`: gives the engine new weights; it is opened and closed here. `options`: as
    in `run`, and so are the errors; those that come up meanwhile are raised to whoever asks for the next group.

    Leaving it cancels what runs and keeps all that ended: a resume goes on from there.
    """
    if queue < 1:
        raise ConfigError(f"a queue holds at least 1 group, not {queue}")
    request = RunRequest(config=config, folder=folder, rounds=rounds, **options)
    async with open_live_run(request) as live, _opened(control):
        keep_stream(live.writer, StreamSettings(queue=queue, bound=bound, rounds=rounds))
        waiting = GroupQueue(
            live.recorder,
            live.writer,
            size=queue,
            bound=bound,
            version=version,
            earlier=_earlier(live) if request.resume else {},
        )
        async with _running(live, waiting, control) as stream:
            yield stream


@asynccontextmanager
async def _running(live: LiveRun, waiting: GroupQueue, control: WeightControl | None) -> AsyncGenerator[RolloutStream]:
    """Run the groups; what stopped them is raised at the end where nobody was told of it before."""
    scheduler = live.scheduler(_Watched(live.executor, waiting), waiting)
    running = asyncio.create_task(scheduler.run(lambda: _next_book(live, waiting)))
    stream = RolloutStream(waiting, scheduler, running, control, live.writer)
    try:
        yield stream
    finally:
        running.cancel()
        await asyncio.wait((running,))
        failure = None if running.cancelled() else running.exception()
    if failure is not None and not stream.told:
        raise failure


@asynccontextmanager
async def _opened(control: WeightControl | None) -> AsyncGenerator[None]:
    if control is None:
        yield
        return
    await control.open()
    try:
        yield
    finally:
        await control.close()


def _earlier(live: LiveRun) -> dict[str, Staleness]:
    """What the record holds of rollouts whose groups come again."""
    known = stalenesses(RunReader(live.folder).annotations())
    ended = (each.rollout for rows in live.planner.earlier.values() for each in rows)
    return {rollout: known[rollout] for rollout in ended if rollout in known}


async def _next_book(live: LiveRun, waiting: GroupQueue) -> GroupBook | None:
    """The next group, when there is room for it."""
    while True:
        while waiting.full:
            await waiting.room()
        book = live.planner.next_book()
        if book is not None:
            waiting.opened(book)
            return book
        if not live.recorder.may_replace:
            return None
        await live.recorder.closing()
