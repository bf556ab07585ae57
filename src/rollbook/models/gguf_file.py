"""The head of a GGUF file (versions 2 and 3, little-endian), read without the weights.

Layout: magic, version, counts, then key-value pairs, then one row per tensor (name, shape, type, offset), padding,
data. Every read is bounds-checked, and the data that the tensor rows promise must lie inside the file, so a cut
download is found here and not by the engine. Format: the GGUF specification of the ggml project.
"""

from __future__ import annotations

import math
import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from rollbook.errors import ModelError

__all__ = ["F32", "GgufHead", "GgufValue", "TensorRow", "read_gguf", "read_head"]

GgufValue = bool | int | float | str | list["GgufValue"]

_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
F32 = 0
"""The tensor type of plain float32."""
_MAX_NESTING = 4

# Tensor type -> (weights in a block, bytes of a block). A type that is not listed is checked up to its start only.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    24: (1, 1), 25: (1, 2), 26: (1, 4), 28: (1, 8), 30: (1, 2),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class TensorRow:
    """One tensor of the file."""

    name: str
    shape: tuple[int, ...]
    """Outermost axis first, as numpy counts; the file has them the other way round."""
    kind: int
    """The tensor type, as ggml numbers them."""
    offset: int
    """Bytes from the start of the data."""

    @property
    def weights(self) -> int:
        return math.prod(self.shape)


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufHead:
    """Everything that stands before the data."""

    metadata: dict[str, GgufValue]
    """The key-value pairs."""
    pairs: dict[str, bytes]
    """The same as they stand in the file, key and type in front: what a copy is made of."""
    tensors: tuple[TensorRow, ...]
    alignment: int
    """Tensors begin at multiples of so many bytes."""
    data_start: int
    """Bytes from the start of the file to the data."""


class _Cut(Exception):
    """The file ends too early, or a count in it cannot be true."""


class _Cursor:
    """Bounds-checked reads over the mapped file."""

    def __init__(self, data: mmap.mmap) -> None:
        self.data, self.at = data, 0

    def take(self, size: int) -> bytes:
        end = self.at + size
        if end > len(self.data):
            raise _Cut
        piece = self.data[self.at : end]
        self.at = end
        return piece

    def unpack(self, layout: str) -> tuple[int, ...]:
        return struct.unpack("<" + layout, self.take(struct.calcsize("<" + layout)))

    def string(self) -> str:
        (size,) = self.unpack("Q")
        return self.take(size).decode("utf-8")

    def value(self, kind: int, depth: int = 0) -> GgufValue:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(depth + 1)
        if kind not in _SCALARS:
            raise _Cut
        return self.unpack(_SCALARS[kind])[0]

    def array(self, depth: int) -> GgufValue:
        kind, count = self.unpack("IQ")
        if count > len(self.data) or depth > _MAX_NESTING:
            raise _Cut
        if kind in _SCALARS:
            return list(self.unpack(f"{count}{_SCALARS[kind]}"))
        return [self.value(kind, depth) for _ in range(count)]


def read_gguf(path: Path) -> dict[str, GgufValue]:
    """The key-value pairs of `path`. Raises `ModelError` for a missing, foreign, cut or too new file."""
    return read_head(path).metadata


def read_head(path: Path) -> GgufHead:
    """The head of `path`; raises as `read_gguf`."""
    try:
        with path.open("rb") as file:
            if file.read(4) != b"GGUF":
                raise ModelError(f"{path} is not a GGUF file: its first bytes are not 'GGUF'")
            with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _read(path, data)
    except FileNotFoundError as error:
        raise ModelError(f"there is no model file {path}: check the path") from error
    except OSError as error:
        raise ModelError(f"cannot read {path}: {error.strerror}") from error
    except (_Cut, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is cut short or damaged: fetch or copy it again") from error


def _read(path: Path, data: mmap.mmap) -> GgufHead:
    cursor = _Cursor(data)
    _, version = cursor.unpack("II")
    if version not in (2, 3):
        raise ModelError(f"{path} is GGUF version {version}; versions 2 and 3 (little-endian) can be read")
    tensors, pairs = cursor.unpack("QQ")
    found: dict[str, GgufValue] = {}
    raw: dict[str, bytes] = {}
    for _ in range(pairs):
        start = cursor.at
        key = cursor.string()
        (kind,) = cursor.unpack("I")
        found[key] = cursor.value(kind)
        raw[key] = data[start : cursor.at]
    alignment = found.get("general.alignment", 32)
    if not isinstance(alignment, int) or alignment < 1:
        raise _Cut
    rows = tuple(_row(cursor) for _ in range(tensors))
    start = -(-cursor.at // alignment) * alignment
    if start + max((row.offset + _size(row) for row in rows), default=0) > len(data):
        raise _Cut
    return GgufHead(metadata=found, pairs=raw, tensors=rows, alignment=alignment, data_start=start)


def _row(cursor: _Cursor) -> TensorRow:
    name = cursor.string()
    (rank,) = cursor.unpack("I")
    if rank > 8:
        raise _Cut
    shape = cursor.unpack(f"{rank}Q")
    kind, offset = cursor.unpack("IQ")
    return TensorRow(name, shape[::-1], kind, offset)


def _size(row: TensorRow) -> int:
    """Bytes of the tensor's data; 0 for a type that is not listed."""
    block, bytes_ = _BLOCKS.get(row.kind, (1, 0))
    return row.weights // block * bytes_
