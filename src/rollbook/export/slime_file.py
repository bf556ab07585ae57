"""slime: a debug rollout file, from which slime (and Miles) train with no engine (``--load-debug-rollout-data OUT``).

Rules: the file is what ``torch.save({"rollout_id": 0, "samples": [...]})`` writes, and needs no torch: a stored zip
with one pickle of plain data in it (dictionaries, lists, numbers, texts), written sample by sample, so one sample at
most is held. Fields as in `rollbook.export.doors.slime`, which both trainers read.
"""

from __future__ import annotations

import pickle
import zipfile
from typing import BinaryIO

from rollbook.export.doors.slime import Numbers, record
from rollbook.trace.sample import Sample

__all__ = ["SlimeWriter", "open_writer"]

_ROOT = "archive"
_PROTOCOL = 2
"""The pickle protocol of torch's own files."""
_HEAD = pickle.PROTO + bytes([_PROTOCOL])
_FIRST_DATE = (1980, 1, 1, 0, 0, 0)
"""What a zip says of a file without a date: the same samples give the same bytes."""


class SlimeWriter:
    """Writes one pickled dictionary for each sample, between the opening and the end of a pickled list."""

    def __init__(self, file: BinaryIO) -> None:
        self._zip = zipfile.ZipFile(file, "w", zipfile.ZIP_STORED)
        self._numbers = Numbers()
        self._data = self._zip.open(_entry("data.pkl"), "w", force_zip64=True)
        opening = _HEAD + pickle.EMPTY_DICT + pickle.MARK + _body("rollout_id") + _body(0) + _body("samples")
        self._data.write(opening + pickle.EMPTY_LIST)

    def write(self, sample: Sample) -> None:
        # numbered from 0 in each body: a later one only writes over what earlier ones remembered
        self._data.write(_body(record(sample, self._numbers)) + pickle.APPEND)

    def finish(self) -> None:
        self._data.write(pickle.SETITEMS + pickle.STOP)
        self._data.close()
        self._zip.writestr(_entry("byteorder"), b"little")
        self._zip.writestr(_entry("version"), b"3\n")
        self._zip.close()

    def release(self) -> None:
        # after an error the file is thrown away: the zip is not told, for it would write its directory
        self._data.close()
        self._zip.fp = None


def open_writer(file: BinaryIO) -> SlimeWriter:
    """A writer into an open file."""
    return SlimeWriter(file)


def _entry(name: str) -> zipfile.ZipInfo:
    return zipfile.ZipInfo(f"{_ROOT}/{name}", _FIRST_DATE)


def _body(value: object) -> bytes:
    """The opcodes of one value, without head and stop."""
    return pickle.dumps(value, _PROTOCOL)[len(_HEAD) : -len(pickle.STOP)]
