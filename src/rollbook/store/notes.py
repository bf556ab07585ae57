"""Streams of annotations: one file per producer, one frame per call, never rewritten.

The writer of a stream holds a lock on its file, so a trainer can annotate while another process writes the run, and
two processes of one producer cannot mix. Annotations are folded when they are read: the newest of a key counts.
"""

from __future__ import annotations

import fcntl
from collections.abc import Iterable
from pathlib import Path

from rollbook.errors import RecordError, RunLocked, StoreError
from rollbook.store.append import AppendFile, StoreOptions
from rollbook.store.folder import annotation_files, annotation_path, read_manifest
from rollbook.store.frame import Codec, DamagedFrame, FrameKind, Packer, SectionId
from rollbook.store.report import Damage, DamageReason, RecoveryReport
from rollbook.store.scan import FileKind, open_frames
from rollbook.store.segment import header_frame
from rollbook.store.tail import cut_tail
from rollbook.trace.annotation import Annotation
from rollbook.trace.wire import decode_record, encode_record

__all__ = ["AnnotationWriter", "read_annotations", "repair_stream"]


class AnnotationWriter:
    """Appends to the stream of one producer. A context manager."""

    __slots__ = ("_file", "_packer", "producer")

    def __init__(
        self, folder: Path, producer: str, options: StoreOptions | None = None, packer: Packer | None = None
    ) -> None:
        self.producer = producer
        self._packer = packer or Packer()
        read_manifest(folder)
        path = annotation_path(folder, producer)
        self._file = AppendFile(path, options or StoreOptions(), new=False)
        try:
            self._prepare(path)
        except BaseException:
            self._file.close()
            raise

    def _prepare(self, path: Path) -> None:
        if not _lock(self._file.descriptor):
            raise RunLocked(
                f"another process writes annotations of '{self.producer}' into this run; wait for it, or use another "
                "producer name"
            )
        _, writable = cut_tail(path, FileKind.ANNOTATIONS, f"annotations/{path.name}", RecoveryReport())
        if not writable:
            raise StoreError(f"{path} is damaged or not ours, so nothing can be written behind it; move it away")
        self._file.size = path.stat().st_size
        if not self._file.size:
            self._file.append(header_frame(self._packer, FileKind.ANNOTATIONS, self.producer))

    def write(self, annotations: Iterable[Annotation]) -> None:
        """Keep these; all of them, or none where `StoreError` is raised."""
        rows = list(annotations)
        stray = {row.producer for row in rows} - {self.producer}
        if stray:
            raise StoreError(f"annotations of {sorted(stray)} do not go into the stream of '{self.producer}'")
        if rows:
            section = (SectionId.NOTES, Codec.ZSTD, encode_record(rows))
            self._file.append(self._packer.pack(FrameKind.NOTES, b"", [section]))

    def close(self) -> None:
        """Close the stream."""
        self._file.close()

    def __enter__(self) -> AnnotationWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _lock(descriptor: int) -> bool:
    """Take the right to write a stream, or return False where another process has it."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def repair_stream(path: Path, name: str, report: RecoveryReport) -> None:
    """Cut the unfinished tail of a stream, unless somebody is writing it."""
    with open_frames(path, name) as file:
        if _lock(file.descriptor):
            cut_tail(path, FileKind.ANNOTATIONS, name, report)


def read_annotations(folder: Path, report: RecoveryReport) -> list[Annotation]:
    """All annotations, stream by stream, oldest first; not folded. What cannot be read goes into the report."""
    return [row for path in annotation_files(folder) for row in _read_stream(path, report)]


def _read_stream(path: Path, report: RecoveryReport) -> list[Annotation]:
    rows: list[Annotation] = []
    name = f"annotations/{path.name}"
    report.forget_unfinished(name)
    with open_frames(path, name) as file:
        if (foreign := file.foreign(FileKind.ANNOTATIONS)) is not None:
            report.add(foreign)
            return rows
        for found in file.walk():
            if isinstance(found, Damage):
                report.add(found)
            elif found.kind == FrameKind.NOTES:
                try:
                    rows += decode_record(file.section(found, SectionId.NOTES), list[Annotation], "annotations")
                except (DamagedFrame, RecordError) as error:
                    report.add(file.damage(found.offset, found.length, DamageReason.SECTION, str(error)))
    return rows
