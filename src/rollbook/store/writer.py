"""The writer of a run: one process, one at a time; the `Sink` of running rollouts on disk.

Rules: after each call everything that the trace held is durable; where a call raises `StoreError`, nothing of it was
stored, nothing stored before is lost, the trace in memory is untouched, and the call can be made again. A rollout is
in the run once: an id that is sealed or in flight is refused. Opening repairs first (`repair`), and what a dead
process left in flight waits for `seal_interrupted`.
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

from rollbook.errors import RecordError, StoreError
from rollbook.store.append import StoreOptions, Sync
from rollbook.store.folder import (
    Manifest,
    RunLock,
    create_folder,
    journal_files,
    make_parts,
    next_number,
    numbered_path,
    read_manifest,
    segment_files,
)
from rollbook.store.frame import Packer
from rollbook.store.journal import Journal
from rollbook.store.notes import AnnotationWriter
from rollbook.store.repair import Folder, repair_folder
from rollbook.store.report import RecoveryReport
from rollbook.store.segment import SegmentWriter
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.protocols import Sink
from rollbook.trace.trace import Trace

__all__ = ["RunWriter"]


class RunWriter(Sink):
    """Writes one run. A context manager; safe to call from several threads."""

    def __init__(self, folder: Path, manifest: Manifest, options: StoreOptions, writer: str) -> None:
        """Use `create` or `open`."""
        folder = self.folder = (
            folder.absolute()
        )  # files are opened later, too, and a tool may change the working folder
        self.manifest = manifest
        self._options, self._writer = options, writer
        self._packer = Packer(options.level)
        self._guard = RLock()
        self._closed = False
        self._segment: SegmentWriter | None = None
        self._notes: dict[str, AnnotationWriter] = {}
        self._lock = RunLock(folder)
        try:
            make_parts(folder)
            self._found: Folder = repair_folder(folder, options, self._packer)
            first = next_number(journal_files(folder))
            self._journal = Journal(folder, writer, first, options, self._packer, self._settle)
        except OSError as error:
            self._lock.release()
            raise StoreError(f"{folder} cannot be opened for writing: {error}") from error
        except BaseException:
            self._lock.release()
            raise

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

    @property
    def recovery(self) -> RecoveryReport:
        """What opening found and cut, and which rollouts were in flight."""
        return self._found.report

    @property
    def sealed(self) -> frozenset[str]:
        """Ids of the rollouts that stand sealed in this run."""
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

        A trace that was made elsewhere (an import) may be sealed without `begin`.
        """
        with self._open():
            self._refuse_known(trace.id)
            self._write(trace)
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

    def _write(self, trace: Trace) -> None:
        if trace.tail.ending is None:
            raise RecordError("a trace without an ending cannot be sealed")
        trace.check()
        self._open_segment().append(trace)
        trace.seal()
        self._found.sealed.add(trace.id)

    def _open_segment(self) -> SegmentWriter:
        if self._segment is not None and self._segment.size >= self._options.segment_bytes:
            self._seal_segment()
        if self._segment is None:
            number = next_number(segment_files(self.folder))
            path = numbered_path(self.folder, "segments", self._writer, number, "seg")
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
        """Keep later facts, each in the stream of its producer."""
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
        done: list[str] = []
        with self._open():
            for rollout, flight in list(self._found.in_flight.items()):
                trace = self._found.load(flight)
                if trace is not None:
                    trace.end(Ending(Reason.INTERRUPTED, detail))
                    self._write(trace)
                    done.append(rollout)
                del self._found.in_flight[rollout]
            self._settle()
            self._found.drop_journals()
        return done

    def close(self) -> None:
        """Seal the segment and give the run free. Rollouts still running stay recoverable in the journal.

        Raises `StoreError` where the footer cannot be written; the run is free all the same, and the next opening
        writes it. A second time does nothing.
        """
        with self._guard, ExitStack() as stack:
            self._closed = True
            stack.callback(self._lock.release)
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
