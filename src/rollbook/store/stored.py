"""Traces as they stand in a segment: read with one call, each section unpacked when it is asked for.

Rule: the text is checked against its CRC although nobody asks for it, so a damaged trace is damaged whichever way it is
read. A frame that is not plainly sound, or holds what this version does not know, says that its marks are not known,
and is then read by `trace`, which tells what is wrong. Routed experts are left out.
"""

from __future__ import annotations

import os
from collections.abc import Callable

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

__all__ = ["StoredFrame", "stored_frame"]

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
        data: memoryview | None = None,
        frame: Frame | None = None,
        marks: int | None = None,
    ) -> None:
        self.rollout, self.marks = rollout, marks
        self._load, self._decompressor, self._data, self._frame = load, decompressor, data, frame

    def section(self, name: str) -> bytes:
        """One section; raises `DamagedFrame`."""
        row = None if self._frame is None else self._frame.sections.get(_NAMES[name])
        if row is None or self._data is None:
            raise DamagedFrame(f"a stored trace has no section {name}")
        return unpack_section(row, self._data[row.offset : row.offset + row.stored], self._decompressor)

    def trace(self) -> Trace | None:
        """The trace; None where it is damaged, which stands in the report then."""
        return self._load()


def stored_frame(
    descriptor: int,
    offset: int,
    length: int,
    rollout: str,
    load: Callable[[], Trace | None],
    decompressor: zstandard.ZstdDecompressor,
) -> StoredFrame:
    """The trace whose frame of this length stands at `offset`."""
    bare = StoredFrame(rollout, load, decompressor)
    try:
        data = memoryview(os.pread(descriptor, length, offset))
        prefix = parse_prefix(data)
        if not prefix.sound or prefix.length != len(data) or prefix.kind != FrameKind.TRACE:
            return bare
        frame = parse_head(prefix, bytes(data[PREFIX_SIZE : PREFIX_SIZE + prefix.head_length]), offset)
        text = frame.sections[SectionId.TEXT]
        check_section(text, data[text.offset : text.offset + text.stored])
        summary = _decode_marks(frame.header)
    except (OSError, StoreError, KeyError, IndexError, ValueError, msgspec.MsgspecError):
        return bare
    if summary.rollout != rollout or not _OF_TRACE.issuperset(frame.sections):
        return bare
    return StoredFrame(rollout, load, decompressor, data, frame, summary.marks)
