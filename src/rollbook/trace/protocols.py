"""Where traces go and where they come from.

Rules: a sink is called in the order begin, turns, seal for each rollout, and what it was given is durable when the call
returns; a source gives only sealed traces. `store` implements both on disk, `MemorySink` in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol, runtime_checkable

from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.stored import StoredTrace
from rollbook.trace.summary import Summary, summarise
from rollbook.trace.trace import Trace

__all__ = ["MemorySink", "Sink", "StoredSource", "TraceSource"]


class Sink(Protocol):
    """Takes the record of running rollouts. Calls are short and never block on anything but the local disk.

    Order for one rollout: `begin`, any number of `turn`, one `seal`. After each call everything that the trace held is
    durable. Raises `StoreError`; the trace in memory is untouched by that.
    """

    def begin(self, trace: Trace) -> None:
        """A rollout starts."""
        ...

    def turn(self, trace: Trace) -> None:
        """Keep what the trace gained since the last call, and its head where that is another one."""
        ...

    def seal(self, trace: Trace) -> None:
        """The rollout stopped; the trace has its ending and becomes sealed."""
        ...

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        """Keep later facts."""
        ...


class TraceSource(Protocol):
    """Gives sealed traces."""

    def summaries(self) -> Iterator[Summary]:
        """One row per sealed rollout, in the order of sealing."""
        ...

    def traces(self) -> Iterator[Trace]:
        """All sealed traces, in the order of sealing."""
        ...

    def get(self, rollout: str) -> Trace:
        """One trace by its rollout id; raises `KeyError`."""
        ...

    def annotations(self) -> list[Annotation]:
        """Later facts, the newest of each key."""
        ...


@runtime_checkable
class StoredSource(Protocol):
    """A source that gives its traces as they are stored, too."""

    def stored(self) -> Iterator[StoredTrace]:
        """All sealed traces, in the order of `TraceSource.traces`."""
        ...


class MemorySink:
    """A sink and source in memory, for tests and for runs that need no disk."""

    def __init__(self) -> None:
        self.running: dict[str, Trace] = {}
        self.sealed: dict[str, Trace] = {}
        self.notes: list[Annotation] = []

    def begin(self, trace: Trace) -> None:
        self.running[trace.id] = trace

    def turn(self, trace: Trace) -> None:
        pass

    def seal(self, trace: Trace) -> None:
        trace.seal()
        self.running.pop(trace.id, None)
        self.sealed[trace.id] = trace

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        self.notes.extend(annotations)

    def summaries(self) -> Iterator[Summary]:
        return (summarise(trace) for trace in self.sealed.values())

    def traces(self) -> Iterator[Trace]:
        return iter(self.sealed.values())

    def get(self, rollout: str) -> Trace:
        return self.sealed[rollout]

    def annotations(self) -> list[Annotation]:
        return fold(self.notes)
