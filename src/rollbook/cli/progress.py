"""Progress on stderr: a bar and how things stand below it where a person watches, plain lines every few seconds
otherwise."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.text import Text

from rollbook.cli.pace import Pace
from rollbook.cli.screen import counted
from rollbook.models import Phase
from rollbook.models import Progress as FetchProgress
from rollbook.rewards import Outcome
from rollbook.rollout.pool import Closed
from rollbook.rollout.snapshot import Snapshot
from rollbook.trace import EndingKind, Fate, Trace

__all__ = ["FetchBar", "RunBar"]

EVERY = 5.0
"""Seconds between two plain lines."""


_WORDS = {Phase.DOWNLOAD: "downloading the model", Phase.UNPACK: "unpacking it", Phase.CHECK: "checking its sum"}


class _Board(Progress):
    """A bar with lines of text below it."""

    lines: Sequence[str] = ()

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield from (Text(line, no_wrap=True, overflow="ellipsis") for line in self.lines)


class _Bar:
    """A rich bar or plain lines, by what stderr is. A context manager."""

    def __init__(self, out: Console, *columns: BarColumn | MofNCompleteColumn | TextColumn | TimeElapsedColumn) -> None:
        self.out = out
        self.bar = _Board(*columns, console=out, transient=True) if out.is_terminal else None

    def __exit__(self, *_: object) -> None:
        if self.bar is not None:
            self.bar.stop()


class RunBar(_Bar):
    """Shows what a run does: that the engine starts, that replies are awaited, members as they finish, and how things
    stand: rollouts and tokens per second, who is in flight by phase, endings, queues."""

    def __init__(self, out: Console, every: float = EVERY) -> None:
        super().__init__(
            out,
            TextColumn("rollouts"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("{task.description}"),
        )
        self._total = self._before = self._ended = self._errors = 0
        self._turns: dict[str, int] = {}
        self._finished_turns = self._rewarded = 0
        self._rewards = 0.0
        self._began = self._said = time.monotonic()
        self._every, self._pace = every, Pace()
        self._task = TaskID(0)

    def __enter__(self) -> RunBar:
        if self.bar is not None:
            self._task = self.bar.add_task("loading the model", total=None)
            self.bar.start()
        return self

    def planned(self, members: int, done: int) -> None:
        self._total, self._before = members, done
        if self.bar is not None:
            self.bar.update(self._task, total=members, completed=self._done, description=self._words(), refresh=True)
        elif not self._ended:
            before = f", {done} of {members} were finished before" if done else ""
            self.out.print(f"{counted(members - done, 'rollout')} to run{before}")

    def turn(self, trace: Trace) -> None:
        first = not self._turns and not self._finished_turns
        self._turns[trace.id] = len(trace.policy_nodes)
        self._tell(at_once=first)

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        self._finished_turns += self._turns.pop(outcome.rollout, 0)
        if late or outcome.disposition.fate is Fate.RETRIED:
            return
        self._ended += 1
        if outcome.reward is not None:
            self._rewarded += 1
            self._rewards += outcome.reward
        self._errors += outcome.reason.kind is EndingKind.ERROR
        self._tell(at_once=self._done == self._total)

    def closed(self, closed: Closed) -> None:
        """A group counts as its members were planned, whoever was replaced or never waited for."""
        missing = closed.plan.size - sum(each.disposition.fate is not Fate.RETRIED for each in closed.outcomes)
        if missing:
            self._ended += missing
            self._tell(at_once=self._done == self._total)

    @property
    def _done(self) -> int:
        return self._before + self._ended

    def snapshot(self, snapshot: Snapshot) -> None:
        self._pace.take(snapshot, time.monotonic(), time.time())
        if self.bar is not None:
            self.bar.lines = self._pace.lines()
        self._tell(at_once=False)

    def _tell(self, *, at_once: bool) -> None:
        if self.bar is not None:
            self.bar.update(self._task, completed=self._done, description=self._words())
        elif at_once or time.monotonic() - self._said >= self._every:
            self._said = time.monotonic()
            took = self._said - self._began
            self.out.print(f"{self._done} of {self._total} rollouts, {took:.0f} s, {self._words()}")
            if self._pace.last is not None and self._done < self._total:
                self.out.print(f"  {self._pace.speed()}, {self._pace.in_flight()}")

    def _words(self) -> str:
        last = self._pace.last
        turns = self._finished_turns + sum(self._turns.values()) if last is None else last.turns
        if not turns and not self._errors and not self._rewarded:
            return "waiting for the first replies"
        mean = f"{self._rewards / self._rewarded:.2f}" if self._rewarded else "-"
        return f"{counted(turns, 'turn')}, mean reward {mean}, {counted(self._errors, 'error')}"


class FetchBar(_Bar):
    """Shows a model being fetched; says nothing where it lies in the cache."""

    def __init__(self, out: Console) -> None:
        super().__init__(out, TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
        self._phase: Phase | None = None
        self._task = TaskID(0)

    def __enter__(self) -> FetchBar:
        return self

    def __call__(self, progress: FetchProgress) -> None:
        """Take one step in, as a `ProgressCallback`."""
        if progress.phase is not self._phase:
            self._phase = progress.phase
            self._begin(progress)
        if self.bar is not None and progress.phase is not Phase.DOWNLOAD:
            self.bar.update(self._task, completed=progress.done)

    def _begin(self, progress: FetchProgress) -> None:
        words = f"{_WORDS[progress.phase]} ({progress.total / 1e6:.0f} MB)"
        if self.bar is None:
            self.out.print(f"{words} ...")
            return
        # pip tells no byte counts, so its bar has no end.
        self._task = self.bar.add_task(words, total=None if progress.phase is Phase.DOWNLOAD else progress.total)
        self.bar.start()
