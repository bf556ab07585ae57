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
from rollbook.policy import PolicyCheck
from rollbook.rewards import Outcome
from rollbook.rollout.pool import Closed
from rollbook.rollout.snapshot import Snapshot
from rollbook.trace import EndingKind, Fate, Trace

__all__ = ["CheckBar", "FetchBar", "RunBar"]

EVERY = 5.0
"""Seconds between two plain lines."""
WAITING = "waiting for the first replies"

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
        self._total: int | None = None
        self._done = self._errors = 0
        self._turns: dict[str, int] = {}
        self._turns_of_ended = 0
        self._line = ""
        self._rewards: list[float] = []
        self._began = self._said = time.monotonic()
        self._every, self._pace = every, Pace()
        self._task = TaskID(0)

    def __enter__(self) -> RunBar:
        if self.bar is not None:
            self._task = self.bar.add_task("loading the model", total=None)
            self.bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self.bar is None and self._words() != WAITING:
            self._print()
        super().__exit__()

    def planned(self, members: int, done: int) -> None:
        first, self._total = self._total is None, members
        if first:
            self._done = done
        if self.bar is not None:
            self.bar.update(self._task, total=members, completed=self._done, description=self._words(), refresh=True)
        elif first:
            before = f", {done} of {members} were finished before" if done else ""
            self.out.print(f"{counted(members - done, 'rollout')} to run{before}")

    def turn(self, trace: Trace) -> None:
        self._turns[trace.id] = len(trace.policy_nodes)
        self._tell(at_once=not self._line)

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        self._turns.pop(outcome.rollout, None)
        self._turns_of_ended += outcome.turns
        if late or outcome.disposition.fate is Fate.RETRIED:
            return
        self._done += 1
        if outcome.reward is not None:
            self._rewards.append(outcome.reward)
        self._errors += outcome.reason.kind is EndingKind.ERROR
        self._tell(at_once=False)

    def closed(self, closed: Closed) -> None:
        self._done += len(closed.cancelled) + closed.unrecorded
        self._tell(at_once=False)

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
            self._print()
            if self._pace.last is not None and self._done < (self._total or 0):
                self.out.print(f"  {self._pace.speed()}, {self._pace.in_flight()}")

    def _print(self) -> None:
        line, took = f"{self._done} of {self._total} rollouts", time.monotonic() - self._began
        words = self._words()
        if self._line != f"{line}, {words}":
            self._line = f"{line}, {words}"
            self.out.print(f"{line}, {took:.0f} s, {words}")

    def _words(self) -> str:
        last = self._pace.last
        # workers elsewhere tell of their turns in snapshots alone, and the last snapshot is older than what ended since
        turns = max(self._turns_of_ended + sum(self._turns.values()), 0 if last is None else last.turns)
        if not turns and not self._errors and not self._rewards:
            return WAITING
        mean = f"{sum(self._rewards) / len(self._rewards):.2f}" if self._rewards else "-"
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


class CheckBar(_Bar):
    """Shows which of a policy's promises is looked at; says nothing where nobody watches."""

    def __init__(self, out: Console) -> None:
        columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
        super().__init__(out, TextColumn("promises"), *columns)
        self._begun = 0
        self._task = TaskID(0)

    def __enter__(self) -> CheckBar:
        if self.bar is not None:
            self._task = self.bar.add_task("loading the model", total=len(PolicyCheck))
            self.bar.start()
        return self

    def __call__(self, check: PolicyCheck) -> None:
        """A check begins."""
        if self.bar is not None:
            self.bar.update(self._task, completed=self._begun, description=check.value, refresh=True)
        self._begun += 1
