"""Members of foreign zip archives, within bounds.

Rules: a member is read whole, and never more than `MOST_MEMBER` bytes of it, whatever its header says; nothing is
unpacked to disk, so names of members are text and no paths. Stored, deflated and zstd members are read; the last have
no reader in Python's own library.
"""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

import zstandard

from rollbook.errors import UsageError
from rollbook.export.importers.rows import BadRow, opened

__all__ = ["MOST_MEMBER", "Archive", "is_archive", "opened_archive"]

MOST_MEMBER = 1 << 30
"""Bytes of one member: 1 GiB."""
MOST_MEMBERS = 1_000_000
_ZSTD = 93
_LOCAL_HEADER = 30


class Archive:
    """An open archive."""

    def __init__(self, path: Path, file: BinaryIO, entries: dict[str, zipfile.ZipInfo]) -> None:
        self.path, self._file, self._entries = path, file, entries

    @property
    def names(self) -> list[str]:
        """The members, in their order."""
        return list(self._entries)

    def read(self, name: str, *, most: int = MOST_MEMBER, stored: bool = False) -> bytes:
        """The bytes of one member. `stored`: it must not be compressed. Raises `BadRow`."""
        entry = self._entries.get(name)
        if entry is None:
            raise BadRow(f"the archive has no member {name[:100]!a}")
        kind = entry.compress_type
        if stored and kind != zipfile.ZIP_STORED:
            raise BadRow(f"member {name[:100]!a} is compressed, which this form never is")
        if max(entry.file_size, entry.compress_size) > most:
            raise BadRow(f"member {name[:100]!a} has {entry.file_size} bytes; at most {most} are read")
        try:
            data = _expand(self._raw(entry), kind, most)
        except (zlib.error, zstandard.ZstdError, struct.error, OSError, ValueError) as error:
            raise BadRow(f"member {name[:100]!a} is damaged: {error}") from error
        if len(data) != entry.file_size or zlib.crc32(data) != entry.CRC:
            raise BadRow(f"member {name[:100]!a} is damaged: its length or checksum is another one")
        return data

    def _raw(self, entry: zipfile.ZipInfo) -> bytes:
        self._file.seek(entry.header_offset)
        header = self._file.read(_LOCAL_HEADER)
        name, extra = struct.unpack_from("<HH", header, 26)
        self._file.seek(entry.header_offset + _LOCAL_HEADER + name + extra)
        return self._file.read(entry.compress_size)


def is_archive(path: Path) -> bool:
    """True where the file begins as a zip archive does."""
    with opened(path) as file:
        return file.read(4) == b"PK\x03\x04"


@contextmanager
def opened_archive(path: Path) -> Generator[Archive]:
    """The archive at `path`; raises `UsageError` where it is none."""
    with opened(path) as file:
        try:
            with zipfile.ZipFile(file) as archive:
                entries = {entry.filename: entry for entry in archive.infolist()[: MOST_MEMBERS + 1]}
        except (zipfile.BadZipFile, ValueError, NotImplementedError, struct.error) as error:
            raise UsageError(f"{path} is no archive that can be read ({error})") from error
        if len(entries) > MOST_MEMBERS:
            raise UsageError(f"{path} has more than {MOST_MEMBERS} members; no form has so many")
        yield Archive(path, file, entries)


def _expand(raw: bytes, kind: int, most: int) -> bytes:
    if kind == zipfile.ZIP_STORED:
        return raw
    if kind == zipfile.ZIP_DEFLATED:
        return zlib.decompressobj(-zlib.MAX_WBITS).decompress(raw, most)
    if kind == _ZSTD:
        with zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(raw) as reader:
            return reader.read(most)
    raise ValueError(f"compression method {kind} has no reader here")
