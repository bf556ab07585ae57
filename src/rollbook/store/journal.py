"""The journal: what running rollouts gained, turn by turn, until they are sealed.

Rules: one file per process, the frames of all running rollouts interleaved; a step is durable when its frame is
written, and costs what the turn added, never what came before. Once a trace stands sealed in a segment its frames
here are dead. A file is a generation: at a size the next one begins, and a generation is deleted when no running
rollout has a frame in it. A rollout that holds old generations is written anew as a whole at its next turn, so the
journal stays bounded unless rollouts fall silent. Frames are not compressed, for they die young.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

import msgspec

from rollbook.errors import StoreError
from rollbook.store.append import AppendFile, StoreOptions
from rollbook.store.folder import numbered_path
from rollbook.store.frame import Codec, FrameKind, Packer, SectionId
from rollbook.store.scan import FileKind
from rollbook.store.segment import PART_SECTIONS, begin_file
from rollbook.trace.node import Mark
from rollbook.trace.record import TraceHead, TraceTail
from rollbook.trace.trace import Trace
from rollbook.trace.wire import Cursor, encode_head, encode_part, encode_record, encode_tail

__all__ = ["Journal", "TurnHeader"]

KEPT_GENERATIONS = 8
"""A running rollout holds at most so many generations, and more only where all that runs needs more."""


class TurnHeader(msgspec.Struct, frozen=True, array_like=True):
    """Header of the frames `BEGIN` (section `HEAD` and what the trace held then) and `TURN` (what it gained since; a
    section `HEAD` where the head is another one since, and the last one holds)."""

    rollout: str
    marks: list[tuple[int, Mark]] = []
    """Marks that were set since the frame before, also on older nodes."""


@dataclass(slots=True)
class _Running:
    """How much of one running trace is in the journal."""

    head: TraceHead | None = None
    """As it was written last; None: not yet."""
    tail: TraceTail = field(default_factory=TraceTail)
    cursor: Cursor = field(default_factory=Cursor)
    marks: int = 0
    generations: set[Path] = field(default_factory=set[Path])
    oldest: int = 0
    """Number behind the oldest of them."""
    size: int = 0
    """Bytes of its frames."""


class Journal:
    """The journal of this process."""

    __slots__ = ("_file", "_folder", "_held", "_next", "_options", "_packer", "_pins", "_running", "_settle", "_writer")

    def __init__(
        self,
        folder: Path,
        writer: str,
        first: int,
        options: StoreOptions,
        packer: Packer,
        settle: Callable[[], None],
    ) -> None:
        """`settle` is called before a generation is deleted: sealed traces must be as safe as their turns were."""
        self._settle = settle
        self._folder, self._writer, self._next = folder, writer, first
        self._options, self._packer = options, packer
        self._file: AppendFile | None = None
        self._running: dict[str, _Running] = {}
        self._held = 0  # bytes of all running rollouts
        self._pins: dict[Path, set[str]] = {}

    def __contains__(self, rollout: str) -> bool:
        return rollout in self._running

    def begin(self, trace: Trace) -> None:
        """Write the head of a rollout that starts, and what it holds already."""
        running = _Running()
        self._write(running, trace, FrameKind.BEGIN)
        self._running[trace.id] = running

    def turn(self, trace: Trace) -> None:
        """Write what the trace gained since the last call; nothing where it gained nothing."""
        running = self._running.get(trace.id)
        if running is None:
            raise StoreError(f"rollout {trace.id} was not begun in this run")
        if self._next - running.oldest >= self._allowed():
            self._carry(running, trace)
            return
        gained = Cursor.end_of(trace) != running.cursor or len(trace.graph.marks) != running.marks
        if gained or trace.head is not running.head or trace.tail is not running.tail:
            self._write(running, trace, FrameKind.TURN)

    def _allowed(self) -> int:
        """How many generations a rollout may hold: so many that writing it anew stays rare, however much runs."""
        return KEPT_GENERATIONS + 4 * self._held // self._options.journal_bytes

    def _carry(self, running: _Running, trace: Trace) -> None:
        """Write a slow rollout anew as a whole, so that the old generations that it holds can go."""
        self.begin(trace)
        self._let_go(trace.id, running, running.generations - self._running[trace.id].generations)

    def _let_go(self, rollout: str, running: _Running, generations: set[Path]) -> None:
        self._held -= running.size
        for path in generations:
            self._pins[path].discard(rollout)
            self._drop_if_dead(path)

    def _write(self, running: _Running, trace: Trace, kind: FrameKind) -> None:
        marks = trace.graph.marks
        header = encode_record(TurnHeader(trace.id, list(islice(marks.items(), running.marks, None))))
        sections = [(PART_SECTIONS[key], Codec.RAW, raw) for key, raw in encode_part(trace, running.cursor).items()]
        if trace.head is not running.head:
            sections.insert(0, (SectionId.HEAD, Codec.RAW, encode_head(trace)))
        if trace.tail is not running.tail:
            sections.append((SectionId.TAIL, Codec.RAW, encode_tail(trace)))
        file = self._open()
        frame = self._packer.pack(kind, header, sections)
        file.append(frame)
        running.size += len(frame)
        self._held += len(frame)
        running.generations.add(file.path)
        running.oldest = running.oldest or self._next
        self._pins[file.path].add(trace.id)
        running.cursor, running.marks = Cursor.end_of(trace), len(marks)
        running.head, running.tail = trace.head, trace.tail

    def sealed(self, rollout: str) -> None:
        """The trace stands in a segment; generations that nobody needs any more go."""
        running = self._running.pop(rollout, None)
        if running is not None:
            self._let_go(rollout, running, running.generations)

    def close(self) -> None:
        """Close the open generation; it stays while a running rollout needs it."""
        if self._file is not None:
            path = self._file.path
            self._file.close()
            self._file = None
            self._drop_if_dead(path)

    def _open(self) -> AppendFile:
        if self._file is not None and self._file.size >= self._options.journal_bytes:
            self.close()
        if self._file is None:
            path = numbered_path(self._folder, "journal", self._writer, self._next, "jnl")
            self._file = begin_file(path, FileKind.JOURNAL, self._writer, self._options, self._packer)
            self._pins[path] = set()
            self._next += 1
        return self._file

    def _drop_if_dead(self, path: Path) -> None:
        if self._pins[path] or (self._file is not None and self._file.path == path):
            return
        self._settle()
        del self._pins[path]
        path.unlink(missing_ok=True)
