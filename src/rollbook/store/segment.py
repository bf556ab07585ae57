"""Segments: files of sealed traces.

Rules: a segment only grows, one frame per trace; when it is sealed, a footer says where each trace stands, so that
reading one trace does not read the others. A segment without a footer (still written, or its writer died) is read by
the heads of its frames and gives the same.
"""

from __future__ import annotations

import os
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import msgspec
import zstandard

from rollbook.errors import NewerFormat, RecordError, StoreError
from rollbook.store.append import AppendFile, StoreOptions
from rollbook.store.folder import rollbook_version
from rollbook.store.frame import Codec, DamagedFrame, Frame, FrameKind, Packer, SectionId
from rollbook.store.report import Damage, DamageReason, RecoveryReport
from rollbook.store.scan import FileHeader, FileKind, FrameFile, open_frames
from rollbook.store.stored import StoredFrame, frame_bytes
from rollbook.trace.summary import Summary, summarise
from rollbook.trace.trace import Trace
from rollbook.trace.wire import (
    WIRE_VERSION,
    decode_record,
    decode_trace,
    encode_head,
    encode_part,
    encode_record,
    encode_tail,
)

__all__ = [
    "PART_SECTIONS",
    "Entry",
    "PackedTrace",
    "SegmentReader",
    "SegmentWriter",
    "begin_file",
    "find_footer",
    "footer_frame",
    "header_frame",
    "pack_trace",
    "read_trace",
]

_TRAILER = struct.Struct("<4sIQ")
_TRAILER_MAGIC = b"RBFT"
PART_SECTIONS = {
    "text": SectionId.TEXT,
    "tokens": SectionId.TOKENS,
    "calls": SectionId.CALLS,
    "experts": SectionId.EXPERTS,
}
"""Sections of `wire.encode_part` by the id under which they are stored; the last one is not always there."""
_SECTIONS = frozenset({SectionId.HEAD, SectionId.TAIL, *PART_SECTIONS.values()})


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """Where one sealed trace stands."""

    rollout: str
    offset: int
    length: int


def header_frame(packer: Packer, content: FileKind, writer: str) -> bytes:
    """The first frame of each file."""
    header = FileHeader(
        content=content, wire=WIRE_VERSION, writer=writer, created=time.time(), rollbook=rollbook_version()
    )
    return packer.pack(FrameKind.FILE, encode_record(header))


def begin_file(path: Path, content: FileKind, writer: str, options: StoreOptions, packer: Packer) -> AppendFile:
    """A new file with its header; where that cannot be written, there is no file."""
    file = AppendFile(path, options, new=True)
    try:
        file.append(header_frame(packer, content, writer))
    except StoreError:
        file.close()
        path.unlink()
        raise
    return file


PackedTrace = tuple[bytes, bytes]
"""The frame of a whole trace, and the summary that is its header."""


def pack_trace(packer: Packer, trace: Trace) -> PackedTrace:
    """Encode and compress a whole trace."""
    summary = encode_record(summarise(trace))
    part = encode_part(trace)
    sections = [
        (SectionId.HEAD, Codec.ZSTD, encode_head(trace)),
        *((PART_SECTIONS[key], Codec.ZSTD, raw) for key, raw in part.items()),
        (SectionId.TAIL, Codec.ZSTD, encode_tail(trace)),
    ]
    sections.sort(key=lambda section: section[0])  # experts last
    return packer.pack(FrameKind.TRACE, summary, sections), summary


def footer_frame(packer: Packer, offset: int, entries: list[Entry], summaries: list[bytes]) -> bytes:
    """The last frame of a segment, to stand at `offset`."""
    sections = [
        (SectionId.INDEX, Codec.ZSTD, encode_record(entries)),
        (SectionId.SUMMARIES, Codec.ZSTD, msgspec.msgpack.encode(summaries)),
        (SectionId.TRAILER, Codec.RAW, _TRAILER.pack(_TRAILER_MAGIC, 0, offset)),
    ]
    return packer.pack(FrameKind.FOOTER, b"", sections)


class SegmentWriter:
    """One open segment."""

    __slots__ = ("_entries", "_file", "_packer", "_summaries")

    def __init__(self, path: Path, writer: str, options: StoreOptions, packer: Packer) -> None:
        self._packer = packer
        self._entries: list[Entry] = []
        self._summaries: list[bytes] = []
        self._file = begin_file(path, FileKind.SEGMENT, writer, options, packer)

    @property
    def size(self) -> int:
        """Bytes written."""
        return self._file.size

    def append(self, rollout: str, packed: PackedTrace) -> None:
        """Write one trace that has its ending."""
        frame, summary = packed
        offset = self._file.append(frame)
        self._entries.append(Entry(rollout, offset, len(frame)))
        self._summaries.append(summary)

    def sync(self) -> None:
        """Force everything to the disk."""
        self._file.sync()

    def seal(self) -> None:
        """Write the footer; raises `StoreError`, and then the segment can be written further."""
        self._file.append(footer_frame(self._packer, self.size, self._entries, self._summaries))

    def close(self) -> None:
        """Close the file as it is."""
        self._file.close()


@dataclass(frozen=True, slots=True)
class _Known:
    """What a reader has found out about a segment so far."""

    inode: int
    sealed: bool
    end: int
    """Behind the last frame that was looked at."""
    places: dict[str, Entry]
    """By rollout, oldest first."""
    summaries: list[Summary] | None
    """None for a sealed segment: they are read from its footer when they are asked for."""


class SegmentReader:
    """Reads one segment, also while it is written. Damage goes into `report`. `experts`: read routed experts along."""

    __slots__ = ("_experts", "_known", "name", "path", "report")

    def __init__(
        self, path: Path, *, name: str | None = None, report: RecoveryReport | None = None, experts: bool = False
    ) -> None:
        self.path = path
        self._experts = experts
        self.name = name or str(path)
        self.report = RecoveryReport() if report is None else report
        self._known: _Known | None = None

    @property
    def sealed(self) -> bool:
        """True where the segment has its footer, so that it will not grow."""
        return self._known is not None and self._known.sealed

    def entries(self) -> list[Entry]:
        """Where the traces stand, oldest first."""
        with open_frames(self.path, self.name) as file:
            return list(self._look(file).places.values())

    def summaries(self) -> list[Summary]:
        """The summaries, oldest first, without reading any body."""
        with open_frames(self.path, self.name) as file:
            known = self._look(file)
            if known.summaries is not None:
                return known.summaries
            footer = find_footer(file)
            try:
                if footer is None:
                    raise DamagedFrame("the footer is gone")
                rows = msgspec.msgpack.decode(file.section(footer, SectionId.SUMMARIES), type=list[bytes])
                return [decode_record(row, Summary, "summary") for row in rows]
            except (DamagedFrame, RecordError, msgspec.MsgspecError) as error:
                at = footer.offset if footer else 0
                self.report.add(file.damage(at, file.size - at, DamageReason.FOOTER, str(error)))
                return self._scan(file, _Known(known.inode, True, 0, {}, [])).summaries or []

    def get(self, rollout: str) -> Trace:
        """One trace; raises `KeyError`, or `DamagedFrame` where it is not what was written."""
        with open_frames(self.path, self.name) as file:
            place = self._look(file).places[rollout]
            frame = file.frame_at(place.offset)
            trace = read_trace(file, frame, rollout, experts=self._experts)
            unknown = sorted(frame.sections.keys() - _SECTIONS)
            if unknown:
                detail = f"sections {unknown} of rollout {rollout}"
                self.report.add(file.damage(frame.offset, frame.length, DamageReason.UNKNOWN, detail))
            return trace

    def traces(self) -> Iterator[Trace | Damage]:
        """All traces, oldest first; one that cannot be read comes as its damage, which is also in the report."""
        return map(self._load, self.entries())

    def stored(self) -> Iterator[StoredFrame]:
        """All traces as they stand, oldest first."""
        entries = self.entries()
        decompressor = zstandard.ZstdDecompressor()
        with open_frames(self.path, self.name) as file:
            places = ((entry.offset, min(entry.length, file.size - entry.offset)) for entry in entries)
            each = frame_bytes(file.descriptor, places)
            for entry, data in zip(entries, each, strict=True):
                yield StoredFrame(entry.rollout, partial(self._load_trace, entry), decompressor, data)

    def _load_trace(self, entry: Entry) -> Trace | None:
        found = self._load(entry)
        return None if isinstance(found, Damage) else found

    def _load(self, entry: Entry) -> Trace | Damage:
        try:
            return self.get(entry.rollout)
        except NewerFormat:
            raise
        except StoreError as error:
            damage = Damage(
                file=self.name,
                offset=entry.offset,
                bytes=entry.length,
                reason=DamageReason.SECTION,
                detail=str(error),
            )
            self.report.add(damage)
            return damage

    def _look(self, file: FrameFile) -> _Known:
        inode = os.fstat(file.descriptor).st_ino
        known = self._known
        if known is None or known.inode != inode or known.end > file.size:
            file.check(FileKind.SEGMENT)
            known = _Known(inode, False, 0, {}, [])
        if not known.sealed and known.end < file.size:
            known = (self._read_footer(file, inode) if not known.end else None) or self._scan(file, known)
        self._known = known
        return known

    def _read_footer(self, file: FrameFile, inode: int) -> _Known | None:
        footer = find_footer(file)
        if footer is None:
            return None
        try:
            entries = decode_record(file.section(footer, SectionId.INDEX), list[Entry], "index")
        except (DamagedFrame, RecordError):
            return None  # the scan that follows comes to the footer and reports it
        if not _covers(file, entries, footer):
            self._tell_rest(file)
        return _Known(inode, True, footer.end, {entry.rollout: entry for entry in entries}, None)

    def _tell_rest(self, file: FrameFile) -> None:
        """Report what stands in a sealed segment beside the traces of its index."""
        for found in file.walk():
            if isinstance(found, Damage):
                self.report.add(found)
            elif found.kind == FrameKind.TRACE:
                self._summary(file, found)

    def _scan(self, file: FrameFile, known: _Known) -> _Known:
        places, summaries, sealed, end = dict(known.places), list(known.summaries or []), known.sealed, known.end
        self.report.forget_unfinished(self.name)
        for found in file.walk(end):
            if isinstance(found, Damage):
                self.report.add(found)
                end += found.bytes if found.reason.passed else 0
                continue
            end = found.end
            if found.kind == FrameKind.TRACE:
                summary = self._summary(file, found)
                if summary is not None:
                    places[summary.rollout] = Entry(summary.rollout, found.offset, found.length)
                    summaries.append(summary)
            elif found.kind == FrameKind.FOOTER:
                sealed = True
                if not known.end:
                    self.report.add(
                        file.damage(found.offset, found.length, DamageReason.FOOTER, "its index or its end")
                    )
        return _Known(known.inode, sealed, end, places, summaries)

    def _summary(self, file: FrameFile, frame: Frame) -> Summary | None:
        try:
            return decode_record(frame.header, Summary, "summary")
        except RecordError as error:
            self.report.add(file.damage(frame.offset, frame.length, DamageReason.SECTION, str(error)))
            return None


def read_trace(file: FrameFile, frame: Frame, rollout: str, *, experts: bool) -> Trace:
    """The trace of one frame; raises `DamagedFrame`."""
    try:
        raw = file.sections(frame, None if experts else SectionId.EXPERTS)
        part = {key: raw[name] for key, name in PART_SECTIONS.items() if name in raw}
        trace = decode_trace(raw[SectionId.HEAD], [part], raw[SectionId.TAIL])
        trace.graph.experts.left_out = not experts and SectionId.EXPERTS in frame.sections
    except (DamagedFrame, RecordError, KeyError, zstandard.ZstdError) as error:
        raise DamagedFrame(f"{file.name} at byte {frame.offset}: {error}") from error
    if trace.id != rollout:
        raise DamagedFrame(f"{file.name} at byte {frame.offset}: holds trace {trace.id}, not {rollout}")
    return trace


def _covers(file: FrameFile, entries: list[Entry], footer: Frame) -> bool:
    """True where file header and indexed traces are all that stands before the footer."""
    try:
        first = file.frame_at(0)
    except DamagedFrame:
        return False
    return first.end + sum(entry.length for entry in entries) == footer.offset


def find_footer(file: FrameFile) -> Frame | None:
    """The footer of a sealed segment, or None where the file does not end in one."""
    if file.size < _TRAILER.size:
        return None
    magic, _, offset = _TRAILER.unpack(os.pread(file.descriptor, _TRAILER.size, file.size - _TRAILER.size))
    if magic != _TRAILER_MAGIC or offset >= file.size:
        return None
    try:
        frame = file.frame_at(offset)
    except DamagedFrame:
        return None  # a scan of the heads follows, and reports what is damaged
    return frame if frame.kind == FrameKind.FOOTER and frame.end == file.size else None
