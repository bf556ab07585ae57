"""Frames: lengths are checked before anything is allocated, and damage has a name."""

from __future__ import annotations

import struct
from zlib import crc32

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import NewerFormat, StoreError
from rollbook.store.frame import (
    MAX_HEAD,
    MAX_SECTION,
    PREFIX_SIZE,
    Codec,
    DamagedFrame,
    Frame,
    FrameKind,
    Packer,
    SectionId,
    SectionRow,
    parse_head,
    parse_prefix,
    unpack_section,
)

DECOMPRESSOR = zstandard.ZstdDecompressor()


def parse(data: bytes) -> Frame:
    prefix = parse_prefix(data)
    assert prefix.sound
    return parse_head(prefix, data[PREFIX_SIZE : PREFIX_SIZE + prefix.head_length], 0)


def section(frame: Frame, data: bytes, name: SectionId) -> bytes:
    row = frame.sections[name]
    return unpack_section(row, data[row.offset : row.offset + row.stored], DECOMPRESSOR)


@given(st.binary(max_size=200), st.dictionaries(st.sampled_from(SectionId), st.binary(max_size=300)), st.booleans())
def test_a_frame_comes_back(header: bytes, sections: dict[SectionId, bytes], packed: bool) -> None:
    codec = Codec.ZSTD if packed else Codec.RAW
    data = Packer().pack(FrameKind.TRACE, header, [(name, codec, raw) for name, raw in sections.items()])
    frame = parse(data)
    assert (frame.kind, frame.header, frame.length) == (FrameKind.TRACE, header, len(data))
    assert {name: section(frame, data, SectionId(name)) for name in frame.sections} == sections


@given(st.integers(0, 8 * 150 - 1))
def test_a_flipped_bit_shows(bit: int) -> None:
    data = bytearray(Packer().pack(FrameKind.TRACE, b"h" * 40, [(SectionId.TEXT, Codec.RAW, b"t" * 66)]))
    assert len(data) == 150
    data[bit // 8] ^= 1 << bit % 8
    flipped = bytes(data)
    if parse_prefix(flipped).sound:
        with pytest.raises(DamagedFrame):
            section(parse(flipped), flipped, SectionId.TEXT)


def test_the_prefix_has_its_own_crc() -> None:
    data = bytearray(Packer().pack(FrameKind.BEGIN, b"h"))
    assert parse_prefix(bytes(data)).sound
    data[4] = FrameKind.TURN
    assert not parse_prefix(bytes(data)).sound


def test_a_bomb_is_not_unpacked() -> None:
    bomb = zstandard.ZstdCompressor().compress(bytes(50_000_000))
    for declared in (1000, 60_000_000):
        row = SectionRow(Codec.ZSTD, 0, len(bomb), declared, crc32(bomb))
        with pytest.raises(DamagedFrame, match="not packed as its row says"):
            unpack_section(row, bomb, DECOMPRESSOR)


def test_a_bomb_that_hides_its_size_is_not_unpacked() -> None:
    stream = zstandard.ZstdCompressor(write_content_size=False).compressobj()
    bomb = stream.compress(bytes(5_000_000)) + stream.flush()
    with pytest.raises(DamagedFrame):
        unpack_section(SectionRow(Codec.ZSTD, 0, len(bomb), 5_000_000, crc32(bomb)), bomb, DECOMPRESSOR)


@pytest.mark.parametrize("tail", [b"x", b"\0" * 9])
def test_more_behind_a_packed_section_is_damage(tail: bytes) -> None:
    packed = zstandard.ZstdCompressor().compress(b"abc") + tail
    with pytest.raises(DamagedFrame):
        unpack_section(SectionRow(Codec.ZSTD, 0, len(packed), 3, crc32(packed)), packed, DECOMPRESSOR)


@pytest.mark.parametrize("codec", [0, 2, 255])
def test_an_unknown_codec_is_damage(codec: int) -> None:
    with pytest.raises(DamagedFrame, match="not packed as its row says"):
        unpack_section(SectionRow(codec, 0, 3, 4, crc32(b"abc")), b"abc", DECOMPRESSOR)


def forged(head_length: int, body_length: int, sections: int, head: bytes = b"", wire: int = 1) -> bytes:
    prefix = struct.pack("<4sBBHIQI", b"RBF1", FrameKind.TRACE, wire, sections, head_length, body_length, crc32(head))
    return prefix + struct.pack("<I", crc32(prefix)) + head


def test_absurd_lengths_are_not_believed() -> None:
    assert not parse_prefix(forged(MAX_HEAD + 1, 0, 0)).sound
    assert not parse_prefix(forged(0, MAX_SECTION + 1, 1)).sound
    assert not parse_prefix(forged(0, 0, 65)).sound
    assert parse_prefix(forged(MAX_HEAD, MAX_SECTION, 1)).sound


def test_rows_that_do_not_fit_are_damage() -> None:
    row = struct.pack("<BBHIII", SectionId.TEXT, 0, 0, 10, 10, 0)
    for head, body, count in ((row, 9, 1), (row, 10, 2), (row[:8], 10, 1)):
        data = forged(len(head), body, count, head)
        with pytest.raises(DamagedFrame):
            parse(data)
    huge = struct.pack("<BBHIII", SectionId.TEXT, 1, 0, 10, MAX_SECTION + 1, 0)
    with pytest.raises(DamagedFrame, match="claims"):
        parse(forged(16, 10, 1, huge))


def test_newer_frames_are_refused_by_name() -> None:
    with pytest.raises(NewerFormat, match="Upgrade Rollbook"):
        parse_prefix(forged(0, 0, 0, wire=2))
    prefix = struct.pack("<4sBBHIQI", b"RBF2", 2, 1, 0, 0, 0, 0)
    with pytest.raises(NewerFormat, match="RBF2"):
        parse_prefix(prefix + struct.pack("<I", crc32(prefix)))


def test_what_is_too_long_is_refused() -> None:
    with pytest.raises(StoreError, match="header"):
        Packer().pack(FrameKind.TRACE, bytes(MAX_HEAD + 1))
