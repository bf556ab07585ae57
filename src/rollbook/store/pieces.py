"""A file in pieces: how a file that only grows is kept as objects that never change.

Rules: piece *n* of a file (from 1) is the object ``<file>/<n>`` with 8 digits; it says at which byte of the file it
begins and has a CRC over that and its bytes; the pieces of a file, in order, are the file. ``run.json`` is the
exception: each of its pieces is the whole file as it was then, and the last one counts.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from zlib import crc32

from rollbook.errors import StoreError

__all__ = [
    "HEADER",
    "MANIFEST",
    "PIECE_BYTES",
    "Pieces",
    "fits",
    "pack_piece",
    "piece_crc",
    "piece_key",
    "sort_pieces",
    "unpack_piece",
]

MANIFEST = "run.json"
PIECE_BYTES = 32 << 20
"""The most bytes of a file in one piece."""

_HEADER = struct.Struct("<4sIQ")
_MAGIC = b"RBP1"
HEADER = _HEADER.size
"""Bytes before those of the file: magic, CRC, offset."""
_KEY = re.compile(
    r"(run\.json|(?:writers/[A-Za-z0-9_-][A-Za-z0-9_.-]*/)?segments/[^/]+\.seg|annotations/[^/]+\.ann)/(\d{8})"
)


@dataclass(slots=True)
class Pieces:
    """The pieces of one file that there are."""

    ends: list[int] = field(default_factory=list[int])
    """Where each piece ends in the file."""

    @property
    def size(self) -> int:
        """Bytes of the file that the pieces hold."""
        return self.ends[-1] if self.ends else 0

    @property
    def last_start(self) -> int:
        """Where the last piece begins."""
        return self.ends[-2] if len(self.ends) > 1 else 0

    def whole(self, size: int) -> int:
        """How many pieces lie within the first `size` bytes of the file."""
        return sum(end <= size for end in self.ends)


def piece_key(file: str, number: int) -> str:
    """The key of piece `number` of a file."""
    return f"{file}/{number:08d}"


def sort_pieces(listing: Mapping[str, int]) -> dict[str, Pieces]:
    """The pieces of each file, from keys and sizes. Other objects are not ours and left alone. Raises `StoreError`
    where a piece is missing before another one."""
    files: dict[str, Pieces] = {}
    for key, size in sorted(listing.items()):
        match = _KEY.fullmatch(key)
        if match is None:
            continue
        pieces = files.setdefault(match[1], Pieces())
        if int(match[2]) != len(pieces.ends) + 1 or size < HEADER:
            raise StoreError(f"piece {len(pieces.ends) + 1} of {match[1]} is missing or no piece; restore it")
        start = 0 if match[1] == MANIFEST else pieces.size
        pieces.ends.append(start + size - HEADER)
    return files


def pack_piece(offset: int, data: bytes) -> bytes:
    """The object that holds `data`, which stand at `offset` of their file."""
    return _HEADER.pack(_MAGIC, _crc(offset, data), offset) + data


def unpack_piece(key: str, piece: bytes, offset: int) -> bytes:
    """The bytes of a piece that must begin at `offset` of its file; raises `StoreError`."""
    data = piece[HEADER:]
    if piece_crc(key, piece) != (_crc(offset, data), offset):
        raise StoreError(f"the object {key} is not what was written; restore it")
    return data


def piece_crc(key: str, header: bytes) -> tuple[int, int]:
    """CRC and offset of a piece, from its first bytes; raises `StoreError`."""
    magic, crc, offset = _HEADER.unpack_from(header) if len(header) >= HEADER else (b"", 0, 0)
    if magic != _MAGIC:
        raise StoreError(f"the object {key} is no piece of a run")
    return crc, offset


def fits(crc: int, offset: int, data: bytes) -> bool:
    """Whether `data` at `offset` are the bytes of the piece with this CRC."""
    return _crc(offset, data) == crc


def _crc(offset: int, data: bytes) -> int:
    return crc32(data, crc32(offset.to_bytes(8, "little")))
