"""JSON Lines: one sample per line, fields as in `rollbook.export.fields`.

Rules: ids and masks are lists of whole numbers; a logprob is written as the shortest decimal that gives the same
float32 back, and an absent one as null; a lone surrogate in an id is written as its ``\\\\uXXXX`` escape, so each line
is ASCII.
"""

from __future__ import annotations

import json
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rollbook.export.fields import arrays, scalars
from rollbook.trace.sample import Sample

__all__ = ["JsonlWriter", "open_writer"]


class JsonlWriter:
    """Writes a line for each sample; holds one line at most."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, sample: Sample) -> None:
        text = json.dumps(scalars(sample), ensure_ascii=True, allow_nan=False, separators=(",", ":"))
        spelled = {"advantages": "null"} | {name: _spell(array) for name, array in arrays(sample).items()}
        parts = (f',"{name}":{each}' for name, each in spelled.items())
        self._file.write(f"{text[:-1]}{''.join(parts)}}}\n".encode("ascii"))

    def finish(self) -> None:
        pass

    def release(self) -> None:
        pass


def open_writer(file: BinaryIO) -> JsonlWriter:
    """A writer into an open file."""
    return JsonlWriter(file)


def _spell(array: npt.NDArray[Any]) -> str:
    if array.dtype != np.float32:
        return json.dumps(array.astype(np.int64).tolist(), separators=(",", ":"))
    # numpy spells a float32 with the fewest digits that give it back
    spelled = np.where(np.isnan(array), "null", array.astype(np.str_))
    return f"[{','.join(spelled.tolist())}]"
