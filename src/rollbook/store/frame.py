"""Frames: the unit in which everything is stored. Layout (little-endian; `docs/trace-format.md` is the specification):

    prefix, 28 bytes    magic, kind, wire version, number of sections, lengths of head and body, CRC of head, of prefix
    head                one row of 16 bytes a section (id, codec, 0, stored length, raw length, CRC), then the header
    body                the sections one after the other, each raw or one zstd frame

Rules: the head can be read and trusted without the body, and each section without the others, for each has its own
CRC. Lengths are checked against the file and against a maximum before anything is allocated. What does not fit is
`DamagedFrame`; nothing is guessed.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from enum import IntEnum
from zlib import crc32

import msgspec
import zstandard

from rollbook.errors import NewerFormat, StoreError
from rollbook.trace.wire import WIRE_VERSION, check_version

__all__ = [
    "FORMAT_VERSION",
    "MAX_HEAD",
    "MAX_SECTION",
    "PREFIX_SIZE",
    "Codec",
    "DamagedFrame",
    "Frame",
    "FrameKind",
    "Packer",
    "Prefix",
    "SectionId",
    "SectionRow",
    "check_section",
    "parse_head",
    "parse_prefix",
    "unpack_section",
]

FORMAT_VERSION = 1
"""Version of frames, file headers, footers and journals; the sections have their own (`wire.WIRE_VERSION`)."""

MAGIC = b"RBF1"
MAX_HEAD = 16 << 20
"""Longest head in bytes."""
MAX_SECTION = 512 << 20
"""Longest section in bytes, before and after compression."""
MAX_SECTIONS = 64

_PREFIX = struct.Struct("<4sBBHIQI")
_CRC = struct.Struct("<I")
_ROW = struct.Struct("<BBHIII")
PREFIX_SIZE = _PREFIX.size + _CRC.size


class FrameKind(IntEnum):
    """What a frame holds."""

    FILE = 1
    """First frame of each file: versions, writer, time."""
    TRACE = 2
    """A sealed trace."""
    FOOTER = 3
    """Last frame of a sealed segment: where its traces stand."""
    BEGIN = 4
    """Journal: a rollout starts."""
    TURN = 5
    """Journal: what a running trace gained."""
    NOTES = 6
    """Annotations."""


class SectionId(IntEnum):
    """What a section holds. Unknown ids are skipped."""

    HEAD = 1
    TEXT = 2
    TOKENS = 3
    CALLS = 4
    TAIL = 5
    NOTES = 6
    """A list of annotations."""
    INDEX = 7
    """Footer: (rollout, offset, length) of each trace."""
    SUMMARIES = 8
    """Footer: the summaries, in the order of the index."""
    TRAILER = 9
    """Footer: its own offset; the last 16 bytes of a sealed segment."""
    EXPERTS = 10
    """Routed experts, where there are some; the last section of its frame, so that the others are read without it."""


class Codec(IntEnum):
    """How a section is packed."""

    RAW = 0
    ZSTD = 1


class DamagedFrame(StoreError):
    """A frame or section is not what was written."""


class Prefix(msgspec.Struct, frozen=True):
    """The first 28 bytes of a frame."""

    kind: int
    sections: int
    head_length: int
    body_length: int
    head_crc: int
    sound: bool
    """False: its own CRC does not fit, so the lengths are only a claim."""

    @property
    def length(self) -> int:
        """Bytes of the whole frame."""
        return PREFIX_SIZE + self.head_length + self.body_length


class SectionRow(msgspec.Struct, frozen=True):
    """Where one section stands and how it is packed."""

    codec: int
    offset: int
    """From the start of the frame."""
    stored: int
    raw: int
    crc: int


class Frame(msgspec.Struct, frozen=True):
    """A frame whose head was checked; the body was not read yet."""

    kind: int
    offset: int
    """In the file."""
    length: int
    header: bytes
    """MessagePack; what it holds depends on the kind."""
    sections: Mapping[int, SectionRow]

    @property
    def end(self) -> int:
        """Offset behind the frame."""
        return self.offset + self.length


class Packer:
    """Makes frames; holds one compressor for all of them."""

    __slots__ = ("_compress",)

    def __init__(self, level: int = 3) -> None:
        self._compress = zstandard.ZstdCompressor(level=level, write_checksum=False).compress

    def pack(self, kind: FrameKind, header: bytes, sections: Sequence[tuple[SectionId, Codec, bytes]] = ()) -> bytes:
        """One whole frame."""
        rows: list[bytes] = []
        bodies: list[bytes] = []
        for name, codec, raw in sections:
            if len(raw) > MAX_SECTION:
                raise StoreError(f"section '{name.name.lower()}' has {len(raw)} bytes; at most {MAX_SECTION} fit")
            stored = raw if codec is Codec.RAW else self._compress(raw)
            rows.append(_ROW.pack(name, codec, 0, len(stored), len(raw), crc32(stored)))
            bodies.append(stored)
        head = b"".join((*rows, header))
        if len(head) > MAX_HEAD:
            raise StoreError(f"a frame header has {len(head)} bytes; at most {MAX_HEAD} fit")
        prefix = _PREFIX.pack(MAGIC, kind, WIRE_VERSION, len(rows), len(head), sum(map(len, bodies)), crc32(head))
        return b"".join((prefix, _CRC.pack(crc32(prefix)), head, *bodies))


def parse_prefix(data: bytes | memoryview) -> Prefix:
    """Read the first `PREFIX_SIZE` bytes of a frame; raises `NewerFormat` for a frame of a newer version."""
    magic, kind, wire, sections, head_length, body_length, head_crc = _PREFIX.unpack_from(data)
    sound = bool(crc32(data[: _PREFIX.size]) == _CRC.unpack_from(data, _PREFIX.size)[0])
    if magic != MAGIC:
        if sound and magic[:3] == MAGIC[:3]:
            raise NewerFormat(f"frames of format '{magic.decode('latin-1')}'; this Rollbook reads RBF1. Upgrade it.")
        sound = False
    if sound:
        check_version(wire, "a stored frame")
    fits = head_length <= MAX_HEAD and sections <= MAX_SECTIONS and body_length <= sections * MAX_SECTION
    return Prefix(kind, sections, head_length, body_length, head_crc, sound and fits)


def parse_head(prefix: Prefix, head: bytes, offset: int) -> Frame:
    """The frame at `offset` of a file, from its prefix and its head; raises `DamagedFrame`."""
    table = prefix.sections * _ROW.size
    if len(head) != prefix.head_length or crc32(head) != prefix.head_crc or table > len(head):
        raise DamagedFrame("the head of a frame does not fit its CRC")
    sections: dict[int, SectionRow] = {}
    place = PREFIX_SIZE + prefix.head_length
    for name, codec, _, stored, raw, crc in _ROW.iter_unpack(head[:table]):
        if stored > MAX_SECTION or raw > MAX_SECTION:
            raise DamagedFrame(f"section {name} claims {raw} bytes; at most {MAX_SECTION} are read")
        sections[name] = SectionRow(codec, place, stored, raw, crc)
        place += stored
    if place != prefix.length:
        raise DamagedFrame("the sections of a frame do not fill it")
    return Frame(prefix.kind, offset, prefix.length, head[table:], sections)


def check_section(row: SectionRow, stored: bytes | memoryview) -> None:
    """Raise `DamagedFrame` where the stored bytes are not what was written."""
    if len(stored) != row.stored or crc32(stored) != row.crc:
        raise DamagedFrame("a section does not fit its CRC")


def unpack_section(row: SectionRow, stored: bytes | memoryview, decompressor: zstandard.ZstdDecompressor) -> bytes:
    """The bytes of one section; raises `DamagedFrame`. Never makes more than the row declares."""
    check_section(row, stored)
    try:
        if row.codec == _ZSTD and zstandard.frame_content_size(stored) == row.raw:
            return decompressor.decompress(stored, max_output_size=row.raw, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise DamagedFrame(f"a section cannot be decompressed: {error}") from error
    if row.codec == Codec.RAW and row.stored == row.raw:
        return bytes(stored)
    raise DamagedFrame("a section is not packed as its row says")


_ZSTD = int(Codec.ZSTD)  # members of enums are slow to look up
