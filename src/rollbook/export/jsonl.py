"""JSON Lines: one sample per line, fields as in `rollbook.export.fields`.

Rules: ids and masks are lists of whole numbers; a logprob is written as the shortest decimal that gives the same
float32 back, and an absent one as null, as is an array that the sample does not have; a lone surrogate in an id is
written as its ``\\\\uXXXX`` escape, so each line is ASCII.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any, BinaryIO

import numpy as np
import numpy.typing as npt

from rollbook.export.decimals import shortest, spell, spell_floats
from rollbook.export.fields import arrays, plain_samplings, scalars
from rollbook.trace.call import Sampling
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["JsonlWriter", "open_writer"]


class JsonlWriter:
    """Writes a line for each sample; holds the lines of one block at most."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file

    def write(self, sample: Sample) -> None:
        self._file.write(_line(sample))

    def write_block(self, block: SampleBlock) -> None:
        logprobs = block.arrays["logprobs"]
        given = ~np.isnan(logprobs)
        decimals = np.zeros(len(logprobs))
        decimals[given] = shortest(logprobs[given])
        bounds = block.offsets.tolist()
        lines = [
            _line(sample, decimals[start:end])
            for sample, start, end in zip(block.samples(), bounds, bounds[1:], strict=False)
        ]
        self._file.write(b"".join(lines))

    def finish(self) -> None:
        pass

    def release(self) -> None:
        pass


def open_writer(file: BinaryIO) -> JsonlWriter:
    """A writer into an open file."""
    return JsonlWriter(file)


def _line(sample: Sample, decimals: npt.NDArray[np.float64] | None = None) -> bytes:
    fields = scalars(sample, samplings=lambda _: None)
    samplings = fields.popitem()
    text = json.dumps(fields, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
    spelled: dict[str, bytes] = {samplings[0]: _samplings(sample.samplings)}
    known: dict[int, bytes] = {}
    for name, array in arrays(sample).items():
        if name == "logprobs":
            spelled[name] = spell_floats(sample.logprobs, decimals)
        elif array.dtype == np.float32:
            spelled[name] = spell_floats(array)
        else:
            place = array.__array_interface__["data"][0]
            spelled[name] = known[place] = known.get(place) or spell(array)
    spelled.setdefault("advantages", b"null")
    parts = [b',"%b":%b' % (name.encode("ascii"), each) for name, each in spelled.items()]
    return b"%b%b}\n" % (text[:-1], b"".join(parts))


@lru_cache(maxsize=4096)
def _samplings(samplings: tuple[Sampling, ...]) -> bytes:
    plain: Any = plain_samplings(samplings)
    return json.dumps(plain, ensure_ascii=True, allow_nan=False, separators=(",", ":")).encode("ascii")
