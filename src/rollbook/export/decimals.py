"""Numbers spelled for JSON, many at once.

Rules: a float32 is spelled as the shortest decimal that gives it back; runs of one number are spelled once. The digits
of a float32 are found with exact arithmetic: the nearest decimal of k digits is taken for the fewest k that give the
number back, and a float64 holds each of these decimals so closely that its own shortest spelling is that decimal.
"""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

__all__ = ["shortest", "spell", "spell_floats"]

_encode = msgspec.json.Encoder().encode
_TENS = 10.0 ** np.arange(23)
"""Powers of ten that a float64 holds exactly."""
_DIGITS = 9
"""Decimal digits that give any float32 back."""


def shortest(values: npt.NDArray[np.float32]) -> npt.NDArray[np.float64]:
    """For each finite float32 the shortest decimal that gives it back, as the nearest float64: shape as given."""
    exact = values.astype(np.float64)
    found = exact.copy()
    with np.errstate(divide="ignore"):
        exponent = np.floor(np.log10(np.abs(exact)))
    # numbers outside these bounds would need a power of ten that is not exact; they keep all their digits
    left = np.flatnonzero((exponent >= -13) & (exponent <= 13))
    for digits in range(1, _DIGITS + 1):
        if not len(left):
            break
        shift = digits - 1 - exponent[left].astype(np.int64)
        up, down = _TENS[np.maximum(shift, 0)], _TENS[np.maximum(-shift, 0)]
        near = np.rint(exact[left] * up / down) * down / up
        fits = near.astype(np.float32) == values[left]
        found[left[fits]] = near[fits]
        left = left[~fits]
    return found


def spell(array: npt.NDArray[Any]) -> bytes:
    """A flat array as a JSON list: masks and whole numbers; runs of one number are cheap."""
    whole = array.view(np.int8) if array.dtype == np.bool_ else array
    edges = np.flatnonzero(whole[1:] != whole[:-1]) + 1
    if len(edges) * 4 > len(whole) or not len(whole):
        return _encode(whole.tolist())
    starts = [0, *edges.tolist()]
    counts = np.diff(starts, append=len(whole)).tolist()
    text = b"".join([b"%d," % value * count for value, count in zip(whole[starts].tolist(), counts, strict=True)])
    return b"[%b]" % text[:-1]


def spell_floats(array: npt.NDArray[np.float32], decimals: npt.NDArray[np.float64] | None = None) -> bytes:
    """A flat float32 array as a JSON list, NaN as null. `decimals`: `shortest` of it, where that is known already."""
    absent = np.isnan(array)
    if decimals is None:
        decimals = np.zeros(len(array))
        decimals[~absent] = shortest(array[~absent])
    edges = [0, *(np.flatnonzero(absent[1:] != absent[:-1]) + 1).tolist(), len(array)]
    parts: list[bytes] = []
    for start, end in itertools.pairwise(edges):
        if start < end:
            parts.append(
                (b"null," * (end - start))[:-1] if absent[start] else _encode(decimals[start:end].tolist())[1:-1]
            )
    return b"[%b]" % b",".join(parts)
