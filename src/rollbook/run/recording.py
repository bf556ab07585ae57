"""What a run keeps while it runs: dispositions as attempts end, advantages as groups close; and who is told of it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from typing import Protocol

from rollbook.errors import RollbookError, boundary
from rollbook.rewards import Advantages, Outcome, annotate
from rollbook.rollout.breaker import Breaker
from rollbook.rollout.pool import Closed, Executor, GroupBook, Listener
from rollbook.rollout.pool.group_scoring import reward_annotations
from rollbook.rollout.snapshot import Snapshot
from rollbook.run.config import RunConfig
from rollbook.run.planning import Planner
from rollbook.store import RunWriter
from rollbook.trace import Annotation, Sink, Trace

__all__ = ["Progress", "ProgressSink", "Recorder", "Silent"]


REPORT_SECONDS = 0.5


class Progress(Protocol):
    """Told what happens while a run runs."""

    def planned(self, members: int, done: int) -> None:
        """So many members are planned, of which so many were finished before the run began or went on. Said again
        where more are planned."""
        ...

    def turn(self, trace: Trace) -> None:
        """A rollout that runs in this process has gained something: a turn, or what answered it."""
        ...

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        """An attempt ended. `late`: nobody waited for it any more."""
        ...

    def closed(self, closed: Closed) -> None:
        """A group closed."""
        ...

    def snapshot(self, snapshot: Snapshot) -> None:
        """How things stand over all workers; told twice a second. What it raises stops the run when the next attempt
        ends, or at the run's end."""
        ...


class Silent:
    """Progress that nobody looks at."""

    def planned(self, members: int, done: int) -> None:
        pass

    def turn(self, trace: Trace) -> None:
        pass

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        pass

    def closed(self, closed: Closed) -> None:
        pass

    def snapshot(self, snapshot: Snapshot) -> None:
        pass


class ProgressSink(Sink):
    """The writer, and somebody who is told of each turn that is kept."""

    def __init__(self, writer: RunWriter, progress: Progress) -> None:
        self._writer, self._progress = writer, progress

    def begin(self, trace: Trace) -> None:
        self._writer.begin(trace)

    def turn(self, trace: Trace) -> None:
        self._writer.turn(trace)
        self._progress.turn(trace)

    def seal(self, trace: Trace) -> None:
        self._writer.seal(trace)

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        self._writer.annotate(annotations)


class Recorder(Listener):
    """Keeps what the scheduler tells."""

    def __init__(self, config: RunConfig, planner: Planner, writer: RunWriter, progress: Progress) -> None:
        self._planner, self._writer, self.progress = planner, writer, progress
        self._replaces = config.groups.resample > 0
        self._breaker = Breaker(config.breaker)
        self._open = 0
        self._closing = asyncio.Event()
        self._reporting: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Keep what the record's own attempts came to, and say what is planned."""
        self._writer.annotate(self._planner.annotations())
        self.progress.planned(self._planner.total, self._planner.done)

    def opened(self, book: GroupBook) -> None:
        """A group begins."""
        del book
        self._open += 1

    @property
    def may_replace(self) -> bool:
        """A group is open that a further task may yet replace."""
        return self._replaces and self._open > 0

    async def closing(self) -> None:
        """Wait until a group closes."""
        self._closing.clear()
        await self._closing.wait()

    @asynccontextmanager
    async def reporting(self, executor: Executor) -> AsyncGenerator[None]:
        """Tell meanwhile how things stand, again and again."""
        self._reporting = asyncio.create_task(self._report(executor))
        try:
            yield
        finally:
            self._reporting.cancel()
            await asyncio.wait((self._reporting,))
        self._check_reporting()

    async def _report(self, executor: Executor) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            with boundary("how the run stands cannot be told", RollbookError):
                self.progress.snapshot(executor.snapshot())

    def _check_reporting(self) -> None:
        if self._reporting is not None and self._reporting.done() and not self._reporting.cancelled():
            self._reporting.result()

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        self._writer.annotate(annotate({outcome.rollout: outcome.disposition}))
        if not late and self._planner.refilled(outcome):
            self.progress.planned(self._planner.total, self._planner.done)
        self.progress.ended(outcome, late=late)
        self._breaker.ended(outcome.reason)
        self._breaker.check()
        self._check_reporting()

    def keep(self, closed: Closed) -> None:
        """Keep what a group came to; with its advantages it is closed for good."""
        self._writer.annotate(reward_annotations(closed.scores.rewards, closed.scores.judged))
        self._writer.annotate(annotate(closed.changed))
        self._writer.annotate(Advantages(closed.advantages).annotations())

    def closed(self, closed: Closed) -> None:
        self.keep(closed)
        self._open -= 1
        if closed.zero_variance and self._planner.flat():
            self.progress.planned(self._planner.total, self._planner.done)
        self.progress.closed(closed)
        self._closing.set()
