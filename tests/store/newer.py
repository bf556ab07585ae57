"""Frames as a newer version might write them: of another kind, with a section more."""

from __future__ import annotations

import struct
from zlib import crc32


def framed(kind: int, like: bytes) -> bytes:
    """A sound frame of another kind than `like`, as a newer version might write."""
    prefix = bytearray(like[:24])
    prefix[4] = kind
    return bytes(prefix) + struct.pack("<I", crc32(prefix)) + like[28:]


def with_section(frame: bytes, name: int) -> bytes:
    """The same frame with a section more."""
    magic, kind, wire, sections, head_length, body_length, _ = struct.unpack("<4sBBHIQI", frame[:24])
    head_bytes, body = frame[28 : 28 + head_length], frame[28 + head_length :]
    extra = b"what a newer version keeps here"
    row = struct.pack("<BBHIII", name, 0, 0, len(extra), len(extra), crc32(extra))
    head_bytes = head_bytes[: 16 * sections] + row + head_bytes[16 * sections :]
    prefix = struct.pack(
        "<4sBBHIQI", magic, kind, wire, sections + 1, len(head_bytes), body_length + len(extra), crc32(head_bytes)
    )
    return prefix + struct.pack("<I", crc32(prefix)) + head_bytes + body + extra
