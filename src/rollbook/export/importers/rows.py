"""Rows of a foreign file, read one at a time and within bounds.

Rules: a row is decoded only when it is asked for, so that a bad one can be skipped and the next one read; what a row
says wrong is a `BadRow` without a place, which whoever reads the file adds; a file that cannot be read as its form at
all is a `UsageError`. No line is longer than `MOST_LINE` bytes, no document larger than `MOST_DOCUMENT`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import msgspec

from rollbook.errors import RollbookError, UsageError

__all__ = ["MOST_DOCUMENT", "MOST_LINE", "BadRow", "Row", "as_record", "decode_json", "json_lines", "opened"]

MOST_LINE = 1 << 28
"""Bytes of one line: 256 MiB."""
MOST_DOCUMENT = 1 << 30
"""Bytes of a file that is one JSON document: 1 GiB."""

_Record = TypeVar("_Record")


class BadRow(RollbookError):
    """A row does not hold what its form says. The message is about the row; its place is added by the reader."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row, not decoded yet."""

    place: str
    """Where it stands, for people: ``line 3``."""
    read: Callable[[], Any]
    """Its plain data. Raises `BadRow`."""


@contextmanager
def opened(path: Path) -> Generator[BinaryIO]:
    """A plain file, for reading; raises `UsageError` where there is none."""
    try:
        if not path.is_file():
            what = "is a folder; name one file of it" if path.is_dir() else "is no file that is there"
            raise UsageError(f"{path} {what}")
        with path.open("rb") as file:
            yield file
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror or error}") from error


def json_lines(path: Path) -> Iterator[Row]:
    """One row for each line that is not empty."""
    with opened(path) as file:
        number = 0
        while line := file.readline(MOST_LINE + 1):
            number += 1
            if len(line) > MOST_LINE:
                raise UsageError(f"{path}, line {number} is longer than {MOST_LINE} bytes; no form has such lines")
            if line.strip():
                yield Row(f"line {number}", _Decode(line))


@dataclass(frozen=True, slots=True)
class _Decode:
    text: bytes

    def __call__(self) -> Any:
        return decode_json(self.text)


def decode_json(text: bytes) -> Any:
    """Plain data of one JSON text; raises `BadRow`. NaN and lone surrogates pass, as Python writes them."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise BadRow(f"it is no JSON ({error})") from error


def as_record(plain: Any, kind: type[_Record]) -> _Record:
    """Plain data as one of a form's records; fields that it does not have are passed over. Raises `BadRow`."""
    try:
        return msgspec.convert(plain, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise BadRow(str(error)) from error
    except UnicodeError as error:  # a lone surrogate where no text belongs
        raise BadRow(f"a text in it is no Unicode ({error})") from error
