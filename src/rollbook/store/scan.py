"""Reading files of frames: by heads, without touching bodies, and whole frames only.

At a place that does not parse: if the file ends inside the frame, that is its unfinished tail; if the frame's length
can be trusted (its CRC fits, or a sound frame begins right behind it), that one frame is skipped; else the rest is
lost. Frames are never searched for inside the bytes, since stored text may spell one.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from zlib import crc32

import msgspec
import zstandard

from rollbook.errors import NewerFormat, RecordError, StoreError
from rollbook.store.frame import (
    FORMAT_VERSION,
    MAGIC,
    PREFIX_SIZE,
    DamagedFrame,
    Frame,
    FrameKind,
    Prefix,
    SectionRow,
    parse_head,
    parse_prefix,
    unpack_section,
)
from rollbook.store.plain_file import open_plain
from rollbook.store.report import Damage, DamageReason
from rollbook.trace.wire import check_version, decode_record

__all__ = ["FileHeader", "FileKind", "FrameFile", "check_header", "open_frames"]

_KINDS = frozenset(int(kind) for kind in FrameKind)
_GUESS = 2048
"""Bytes read at once for a head; longer heads take a second read."""


class FileKind(StrEnum):
    """What a file of frames holds."""

    SEGMENT = "segment"
    JOURNAL = "journal"
    ANNOTATIONS = "annotations"


class FileHeader(msgspec.Struct, frozen=True, kw_only=True):
    """Header of the first frame of each file."""

    content: FileKind
    format: int = FORMAT_VERSION
    wire: int
    """Version of the sections within."""
    writer: str
    created: float
    """Unix seconds."""
    rollbook: str
    """Version of the package that wrote it."""


class _Versions(msgspec.Struct, frozen=True, kw_only=True):
    """The part of a file header that every version has."""

    content: str
    format: int
    wire: int


class FrameFile:
    """One open file of frames. `size` is what was there when it was opened."""

    __slots__ = ("_decompressor", "descriptor", "name", "size")

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self.name = name
        self.size = os.fstat(descriptor).st_size
        self._decompressor = zstandard.ZstdDecompressor()

    def frame_at(self, offset: int) -> Frame:
        """The frame at `offset`; raises `DamagedFrame`."""
        data = os.pread(self.descriptor, _GUESS, offset)
        if len(data) < PREFIX_SIZE:
            raise DamagedFrame("the file ends inside a frame")
        prefix = parse_prefix(data)
        if not prefix.sound:
            raise DamagedFrame("the prefix of a frame does not fit its CRC")
        return self._frame(prefix, data, offset)

    def _frame(self, prefix: Prefix, data: bytes, offset: int) -> Frame:
        if offset + prefix.length > self.size:
            raise DamagedFrame("the file ends inside a frame")
        head_end = PREFIX_SIZE + prefix.head_length
        if head_end > len(data):
            data += os.pread(self.descriptor, head_end - len(data), offset + len(data))
        return parse_head(prefix, data[PREFIX_SIZE:head_end], offset)

    def section(self, frame: Frame, name: int) -> bytes:
        """One section of a frame, unpacked; raises `DamagedFrame`."""
        row = self._row(frame, name)
        return unpack_section(row, os.pread(self.descriptor, row.stored, frame.offset + row.offset), self._decompressor)

    def sections(self, frame: Frame, without: int | None = None) -> dict[int, bytes]:
        """All sections of a frame but the one `without`, read at once; raises `DamagedFrame`."""
        rows = {name: row for name, row in frame.sections.items() if name != without}
        end = max((row.offset + row.stored for row in rows.values()), default=0)
        body = memoryview(os.pread(self.descriptor, end, frame.offset))
        return {
            name: unpack_section(row, body[row.offset : row.offset + row.stored], self._decompressor)
            for name, row in rows.items()
        }

    def verify(self, frame: Frame) -> None:
        """Check the sections of a frame against their CRCs, without unpacking them; raises `DamagedFrame`."""
        for row in frame.sections.values():
            if crc32(os.pread(self.descriptor, row.stored, frame.offset + row.offset)) != row.crc:
                raise DamagedFrame("a section does not fit its CRC")

    def _row(self, frame: Frame, name: int) -> SectionRow:
        row = frame.sections.get(name)
        if row is None:
            raise DamagedFrame(f"a frame of kind {frame.kind} has no section {name}")
        return row

    def walk(self, start: int = 0) -> Iterator[Frame | Damage]:
        """Frames from `start` on, in order, by their heads; what cannot be read comes as a `Damage`."""
        offset = start
        while offset < self.size:
            found = self._step(offset)
            if isinstance(found, Frame) and found.kind not in _KINDS:
                found = self.damage(offset, found.length, DamageReason.UNKNOWN, f"a frame of kind {found.kind}")
            yield found
            if isinstance(found, Frame):
                offset = found.end
            elif found.reason.passed:
                offset += found.bytes
            else:
                return

    def _step(self, offset: int) -> Frame | Damage:
        data = os.pread(self.descriptor, min(_GUESS, self.size - offset), offset)
        rest = self.size - offset
        if rest < PREFIX_SIZE:
            return self.damage(offset, rest, DamageReason.UNFINISHED)
        prefix = parse_prefix(data)
        if not prefix.sound:
            return self._unsound(prefix, offset, rest)
        if prefix.length > rest:
            return self.damage(offset, rest, DamageReason.UNFINISHED)
        try:
            return self._frame(prefix, data, offset)
        except DamagedFrame as error:
            return self.damage(offset, prefix.length, DamageReason.FRAME, str(error))

    def _unsound(self, prefix: Prefix, offset: int, rest: int) -> Damage:
        if prefix.length <= rest and self._begins_at(offset + prefix.length):
            return self.damage(offset, prefix.length, DamageReason.FRAME, "the prefix does not fit its CRC")
        if self._is_blank(offset):
            return self.damage(offset, rest, DamageReason.UNFINISHED, "blank bytes, as after a power loss")
        return self.damage(offset, rest, DamageReason.LOST)

    def _begins_at(self, offset: int) -> bool:
        if offset == self.size:
            return True
        data = os.pread(self.descriptor, PREFIX_SIZE, offset)
        return len(data) == PREFIX_SIZE and parse_prefix(data).sound

    def _is_blank(self, offset: int) -> bool:
        while block := os.pread(self.descriptor, 1 << 20, offset):
            if block.strip(b"\0"):
                return False
            offset += len(block)
        return True

    def damage(self, offset: int, count: int, reason: DamageReason, detail: str = "", *, cut: bool = False) -> Damage:
        """A row for the report."""
        return Damage(file=self.name, offset=offset, bytes=count, reason=reason, detail=detail, cut=cut)

    def check(self, content: FileKind) -> None:
        """Refuse a file of another tool or kind (`StoreError`), or one that is too new (`NewerFormat`).

        A file header that is damaged or unfinished is left to `walk`: frames carry their version themselves.
        """
        ours = MAGIC.startswith(os.pread(self.descriptor, len(MAGIC) - 1, 0))
        first = self._step(0) if self.size >= PREFIX_SIZE else None
        if isinstance(first, Frame):
            check_header(first, content, self.name)
        elif not ours and (first is None or first.reason is DamageReason.LOST):
            raise StoreError(f"{self.name} is not a Rollbook {content} file")

    def foreign(self, content: FileKind) -> Damage | None:
        """The row for a file that is not ours, None for one of ours; raises `NewerFormat`."""
        try:
            self.check(content)
        except NewerFormat:
            raise
        except StoreError as error:
            return self.damage(0, self.size, DamageReason.FOREIGN, str(error))
        return None


def check_header(frame: Frame, content: FileKind, name: str) -> None:
    """Refuse a file of another kind, or one that a newer version wrote."""
    if frame.kind != FrameKind.FILE:
        raise DamagedFrame(f"{name} does not begin with a file header")
    try:
        versions = decode_record(frame.header, _Versions, "file header")
    except RecordError as error:
        raise DamagedFrame(f"{name}: {error}") from error
    if versions.format > FORMAT_VERSION:
        raise NewerFormat(
            f"{name} has format version {versions.format}; this Rollbook reads versions up to {FORMAT_VERSION}. "
            "Upgrade Rollbook."
        )
    check_version(versions.wire, name)
    if versions.content != content:
        raise StoreError(f"{name} is a Rollbook {versions.content} file, not a {content} file")


@contextmanager
def open_frames(path: Path, name: str | None = None) -> Generator[FrameFile]:
    """Open a file of frames for reading; `name` stands in messages."""
    try:
        descriptor = open_plain(path, os.O_RDONLY)
    except OSError as error:
        raise StoreError(f"{path} cannot be read: {error.strerror}") from error
    try:
        yield FrameFile(descriptor, name or str(path))
    finally:
        os.close(descriptor)
