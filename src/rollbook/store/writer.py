"""The writer of a run or of a part of it: one process, one at a time; the `Sink` of running rollouts on disk.

Rules: after each call everything that the trace held is durable; where a call raises `StoreError`, nothing of it was
stored, nothing stored before is lost, the trace in memory is untouched, and the call can be made again. A rollout is
in the run once: an id that is sealed or in flight is refused. Opening repairs first (`repair`), and what a dead
process left in flight waits for `seal_interrupted`.

Several processes write one run: its owner (`create`, `open`) and workers that `join` it, each into its own part, with
its own lock, journal and segments. The owner alone annotates. It takes over the part of a dead worker while the others
go on (`recover_part`); opening a run repairs all parts, and is refused while a worker lives. A part refuses the ids
that it knows; that an id is not used in two parts is the owner's business.
"""

from __future__ import annotations

import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from threading import RLock
from typing import Any

import msgspec

from rollbook.errors import RecordError, StoreError
from rollbook.store.append import StoreOptions, Sync
from rollbook.store.folder import (
    FOLDER_VERSION,
    Manifest,
    RunLock,
    create_folder,
    journal_files,
    make_subfolders,
    next_number,
    numbered_path,
    part_folder,
    part_folders,
    read_manifest,
    segment_files,
    write_manifest,
)
from rollbook.store.frame import Packer
from rollbook.store.journal import Journal
from rollbook.store.notes import AnnotationWriter
from rollbook.store.repair import Folder, repair_folder
from rollbook.store.report import RecoveryReport
from rollbook.store.segment import PackedTrace, SegmentWriter, pack_trace
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.protocols import Sink
from rollbook.trace.trace import Trace

__all__ = ["RunWriter"]


class RunWriter(Sink):
    """Writes one run. A context manager; safe to call from several threads."""

    def __init__(
        self, folder: Path, manifest: Manifest, options: StoreOptions, writer: str, part: str | None = None
    ) -> None:
        """Use `create`, `open` or `join`."""
        self.folder = folder.absolute()  # files are opened later, too, and a tool may change the working folder
        """The run's."""
        self.part = part
        """The name under which this writer joined; None for the run's owner."""
        self.manifest = manifest
        self._place = self.folder if part is None else part_folder(self.folder, part)
        self._options, self._writer = options, writer
        self._packer = Packer(options.level)
        self._guard = RLock()
        self._packers: list[Packer] = []
        self._closed = False
        self._segment: SegmentWriter | None = None
        self._notes: dict[str, AnnotationWriter] = {}
        try:
            if part is not None:
                make_subfolders(self._place, annotations=False)
            with ExitStack() as stack:
                self._lock = RunLock(self._place)
                stack.callback(self._lock.release)
                self._start(stack)
                stack.pop_all()
        except OSError as error:
            raise StoreError(f"{self._place} cannot be opened for writing: {error}") from error

    def _start(self, stack: ExitStack) -> None:
        """Repair; the locks of the parts are held until nothing is in flight there."""
        self._parts: list[RunLock] = []
        if self.part is None:
            make_subfolders(self.folder, annotations=True)
            for folder in part_folders(self.folder):
                self._parts.append(RunLock(folder))
                stack.callback(self._parts[-1].release)
            if self.manifest.version < FOLDER_VERSION:
                self.manifest = msgspec.structs.replace(self.manifest, version=FOLDER_VERSION)
                write_manifest(self.folder, self.manifest)
        self._found = repair_folder(Folder(self.folder), self._place, self._options, self._packer)
        if not self._found.in_flight:
            self._release_parts()
        first = next_number(journal_files(self._place))
        self._journal = Journal(self._place, self._writer, first, self._options, self._packer, self._settle)

    def _release_parts(self) -> None:
        for lock in self._parts:
            lock.release()
        self._parts.clear()

    @classmethod
    def create(
        cls,
        folder: str | os.PathLike[str],
        config: Mapping[str, Any] | None = None,
        *,
        options: StoreOptions | None = None,
        writer: str | None = None,
    ) -> RunWriter:
        """Start a new run in a folder that is new or empty. `config` is plain JSON data; it is kept in `run.json`."""
        path = Path(folder)
        return cls(path, create_folder(path, config or {}), options or StoreOptions(), _writer_name(writer))

    @classmethod
    def open(
        cls, folder: str | os.PathLike[str], *, options: StoreOptions | None = None, writer: str | None = None
    ) -> RunWriter:
        """Continue a run. What the last writer left is repaired first and told in `recovery`."""
        path = Path(folder)
        return cls(path, read_manifest(path), options or StoreOptions(), _writer_name(writer))

    @classmethod
    def join(cls, folder: str | os.PathLike[str], name: str, *, options: StoreOptions | None = None) -> RunWriter:
        """Write a part of one's own, ``writers/<name>``, of a run that another process opened or created for writing.

        A part that a dead worker of this name left is repaired and told in `recovery`. Raises `RunLocked` where a
        worker of this name lives.
        """
        path = Path(folder)
        manifest = read_manifest(path)
        if manifest.version < FOLDER_VERSION:
            raise StoreError(
                f"{path} was made by an older Rollbook for one writer alone; open it for writing once (RunWriter.open)"
            )
        return cls(path, manifest, options or StoreOptions(), name, name)

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and cut, and which rollouts were in flight."""
        return self._found.report

    @property
    def sealed(self) -> frozenset[str]:
        """Ids of the rollouts that stand sealed in this run, as far as this writer knows: what it sealed itself, and
        what it found when it opened (for the owner, in all parts)."""
        return frozenset(self._found.sealed)

    def begin(self, trace: Trace) -> None:
        """A rollout starts."""
        with self._open():
            self._refuse_known(trace.id)
            if trace.id in self._journal:
                raise StoreError(f"rollout {trace.id} is running already")
            self._journal.begin(trace)

    def turn(self, trace: Trace) -> None:
        """Keep what the trace gained since the last call, and its head where that is another one."""
        with self._open():
            self._journal.turn(trace)

    def seal(self, trace: Trace) -> None:
        """Write the whole trace into the segment; it must have its ending and is sealed afterwards.

        A trace that was made elsewhere (an import) may be sealed without `begin`. Encoding and compressing do not
        hold other threads up.
        """
        with self._open():
            self._refuse_known(trace.id)
        packed = self._pack(trace)
        with self._open():
            self._refuse_known(trace.id)
            self._write(trace, packed)
            self._journal.sealed(trace.id)

    def _open(self) -> RLock:
        if self._closed:
            raise StoreError(f"the writer of {self.folder} is closed")
        return self._guard

    def _refuse_known(self, rollout: str) -> None:
        if rollout in self._found.sealed:
            raise StoreError(f"rollout {rollout} is sealed in this run already; a further attempt needs its own id")
        if rollout in self._found.in_flight:
            raise StoreError(
                f"rollout {rollout} was in flight when an earlier process died; call seal_interrupted first and give "
                "the next attempt its own id"
            )

    def _pack(self, trace: Trace) -> PackedTrace:
        """Compressors serve one thread at a time, so those that wait here are handed out."""
        if trace.tail.ending is None:
            raise RecordError("a trace without an ending cannot be sealed")
        trace.check()
        packer = self._packers.pop() if self._packers else Packer(self._options.level)
        try:
            return pack_trace(packer, trace)
        finally:
            self._packers.append(packer)

    def _write(self, trace: Trace, packed: PackedTrace) -> None:
        self._open_segment().append(trace.id, packed)
        trace.seal()
        self._found.sealed.add(trace.id)

    def _open_segment(self) -> SegmentWriter:
        if self._segment is not None and self._segment.size >= self._options.segment_bytes:
            self._seal_segment()
        if self._segment is None:
            number = next_number(segment_files(self._place))
            path = numbered_path(self._place, "segments", self._writer, number, "seg")
            self._segment = SegmentWriter(path, self._writer, self._options, self._packer)
        return self._segment

    def _seal_segment(self) -> None:
        if self._segment is not None:
            self._segment.seal()
            segment, self._segment = self._segment, None
            segment.close()

    def _settle(self) -> None:
        if self._segment is not None and self._options.sync is not Sync.NONE:
            self._segment.sync()

    def annotate(self, annotations: Iterable[Annotation]) -> None:
        """Keep later facts, each in the stream of its producer; only the run's owner can."""
        if self.part is not None:
            raise StoreError(f"writer '{self.part}' of {self.folder} has a part of its own; the run's owner annotates")
        by_producer: dict[str, list[Annotation]] = {}
        for annotation in annotations:
            by_producer.setdefault(annotation.producer, []).append(annotation)
        with self._open():
            for producer, rows in by_producer.items():
                if producer not in self._notes:
                    self._notes[producer] = AnnotationWriter(self.folder, producer, self._options, self._packer)
                self._notes[producer].write(rows)

    def recover(self) -> Iterator[Trace]:
        """The traces that a dead process left in flight, one at a time, with all their finished turns; not sealed.

        One whose beginning is damaged is left out and told in `recovery`.
        """
        for flight in list(self._found.in_flight.values()):
            trace = self._found.load(flight)
            if trace is not None:
                yield trace

    def seal_interrupted(self, detail: str = "the process that ran it died") -> list[str]:
        """Seal what was in flight as ``error/interrupted``, finished turns kept; returns the rollout ids.

        A trace whose ending was stored already keeps it: the first cause wins. Nothing is spliced: running a task
        again makes another rollout with its own id.
        """
        with self._open():
            done = self._seal_flights(self._found, detail)
            self._release_parts()
        return done

    def recover_part(self, name: str, detail: str = "the process that ran it died") -> list[str]:
        """Take over the part of a dead worker while others write: repair it and seal what was in flight there, as
        `seal_interrupted` does, in a segment of the owner's; returns the rollout ids. Damage is told in `recovery`.

        Raises `RunLocked` where the worker lives, or a child of it that holds its files. After any `StoreError` it can
        be called again. A part that is not there has nothing in flight.
        """
        with self._open():
            place = part_folder(self.folder, name)
            if self.part is not None:
                raise StoreError(f"writer '{self.part}' of {self.folder} cannot take over a part; the run's owner can")
            if not place.is_dir():
                return []
            with RunLock(place):
                found = Folder(self.folder, self._found.report, set(self._found.sealed))
                repair_folder(found, place, self._options, self._packer)
                self._found.sealed |= found.sealed
                return self._seal_flights(found, detail)

    def _seal_flights(self, found: Folder, detail: str) -> list[str]:
        done: list[str] = []
        for rollout, flight in list(found.in_flight.items()):
            trace = found.load(flight)
            if trace is not None:
                trace.end(Ending(Reason.INTERRUPTED, detail))
                self._write(trace, self._pack(trace))
                done.append(rollout)
            del found.in_flight[rollout]
        self._settle()
        found.drop_journals()
        return done

    def close(self) -> None:
        """Seal the segment and give the run free. Rollouts still running stay recoverable in the journal.

        Raises `StoreError` where the footer cannot be written; the run is free all the same, and the next opening
        writes it. A second time does nothing.
        """
        with self._guard, ExitStack() as stack:
            self._closed = True
            stack.callback(self._lock.release)
            stack.callback(self._release_parts)
            for stream in self._notes.values():
                stack.callback(stream.close)
            stack.callback(self._journal.close)
            if self._segment is not None:
                segment, self._segment = self._segment, None
                stack.callback(segment.close)
                segment.seal()

    def __enter__(self) -> RunWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _writer_name(writer: str | None) -> str:
    name = writer or f"{socket.gethostname()}-{os.getpid()}"
    return re.sub(r"[^A-Za-z0-9_.-]", "_", name)[:100]
