"""Traces as they stand in a segment: read with one call, each section unpacked when it is asked for.

Rule: the text is checked against its CRC although nobody asks for it, so a damaged trace is damaged whichever way it is
read. A frame that is not plainly sound, or holds what this version does not know, says that its marks are not known,
and is then read by `trace`, which tells what is wrong. Routed experts are left out.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterable, Iterator

import msgspec
import zstandard

from rollbook.errors import StoreError
from rollbook.store.frame import (
    PREFIX_SIZE,
    DamagedFrame,
    Frame,
    FrameKind,
    SectionId,
    check_section,
    parse_head,
    parse_prefix,
    unpack_section,
)
from rollbook.trace.trace import Trace

__all__ = ["StoredFrame", "frame_bytes"]

_NAMES = {name.name.lower(): name for name in SectionId}
_OF_TRACE = frozenset(_NAMES[name] for name in ("head", "text", "tokens", "calls", "tail", "experts"))


class _Marks(msgspec.Struct, frozen=True):
    """The part of a summary that tells how to read its trace."""

    rollout: str
    marks: int | None = None


_decode_marks = msgspec.msgpack.Decoder(_Marks).decode


class StoredFrame:
    """One stored trace (`rollbook.trace.stored.StoredTrace`)."""

    __slots__ = ("_data", "_decompressor", "_frame", "_load", "marks", "rollout")

    def __init__(
        self,
        rollout: str,
        load: Callable[[], Trace | None],
        decompressor: zstandard.ZstdDecompressor,
        data: memoryview,
    ) -> None:
        """`data`: its whole frame."""
        self.rollout = rollout
        self._load, self._decompressor, self._data = load, decompressor, data
        self._frame, self.marks = _sound(rollout, data) or (None, None)

    def section(self, name: str) -> bytes:
        """One section; raises `DamagedFrame`."""
        row = None if self._frame is None else self._frame.sections.get(_NAMES[name])
        if row is None:
            raise DamagedFrame(f"a stored trace has no section {name}")
        return unpack_section(row, self._data[row.offset : row.offset + row.stored], self._decompressor)

    def trace(self) -> Trace | None:
        """The trace; None where it is damaged, which stands in the report then."""
        return self._load()


def _sound(rollout: str, data: memoryview) -> tuple[Frame, int | None] | None:
    """The frame and its marks; None where it is not plainly sound."""
    try:
        prefix = parse_prefix(data)
        if not prefix.sound or prefix.length != len(data) or prefix.kind != FrameKind.TRACE:
            return None
        frame = parse_head(prefix, bytes(data[PREFIX_SIZE : PREFIX_SIZE + prefix.head_length]), 0)
        text = frame.sections[SectionId.TEXT]
        check_section(text, data[text.offset : text.offset + text.stored])
        summary = _decode_marks(frame.header)
    except (StoreError, KeyError, IndexError, ValueError, struct.error, msgspec.MsgspecError):
        return None
    return (frame, summary.marks) if summary.rollout == rollout and _OF_TRACE.issuperset(frame.sections) else None


def frame_bytes(descriptor: int, places: Iterable[tuple[int, int]]) -> Iterator[memoryview]:
    """The bytes at each (offset, length), fewer where the file ends or cannot be read. Those that stand one behind the
    other are read together, up to 1 MiB."""
    together: list[int] = []
    start = end = 0
    for offset, claimed in places:
        length = max(claimed, 0)
        if together and (offset != end or end + length - start > _TOGETHER):
            yield from _cut(descriptor, start, together)
            together.clear()
        if not together:
            start = end = offset
        together.append(length)
        end += length
    yield from _cut(descriptor, start, together)


def _cut(descriptor: int, start: int, lengths: list[int]) -> Iterator[memoryview]:
    try:
        data = memoryview(os.pread(descriptor, sum(lengths), start))
    except OSError:
        data = memoryview(b"")
    place = 0
    for length in lengths:
        yield data[place : place + length]
        place += length


_TOGETHER = 1 << 20
