"""Where the tokens of one encoded stretch lie in its text.

The bytes of the tokens say it exactly, whatever offsets the tokenizers library reports (Unigram gives all bytes of
several unknown characters one span). A dummy blank belongs to the character behind it. Only where a normalizer has
changed the text (NFC) the library's own offsets count; what lies between two tokens then belongs to the earlier.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from itertools import accumulate
from typing import Protocol

import numpy as np
from tokenizers import Encoding

__all__ = ["Offsets", "offsets_of"]


class Offsets(Protocol):
    """First and last characters of tokens, in positions of the stretch."""

    def covering(self, position: int) -> int:
        """The first token that ends behind `position`."""
        ...

    def behind(self, position: int) -> int:
        """The first token that starts at `position` or later."""
        ...


def offsets_of(encoding: Encoding, spelled: Sequence[bytes], text: str) -> Offsets:
    """`spelled`: the bytes of each token of `encoding`, which encodes `text`."""
    data, found = text.encode(), b"".join(spelled)
    blank = len(found) - len(data)
    if blank in (0, 1) and found == b" " * blank + data:
        return _ByBytes(text, blank, list(accumulate(map(len, spelled))))
    return _ByLibrary(encoding, len(text))


class _ByBytes:
    """The tokens spell the text, perhaps behind a dummy blank."""

    __slots__ = ("_blank", "_ends", "_text")

    def __init__(self, text: str, blank: int, ends: list[int]) -> None:
        self._text, self._blank = text, blank
        self._ends = ends
        """In bytes."""

    def _first_byte(self, position: int) -> int:
        """Of the character at `position`; the dummy blank lies within the first one."""
        return self._blank + len(self._text[:position].encode()) if position > 0 else 0

    def covering(self, position: int) -> int:
        return bisect_right(self._ends, self._first_byte(position))

    def behind(self, position: int) -> int:
        byte = self._first_byte(position)
        return min(bisect_left(self._ends, byte) + 1, len(self._ends)) if byte else 0


class _ByLibrary:
    """The text was normalised: only the library knows."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, encoding: Encoding, size: int) -> None:
        spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
        starts = np.maximum.accumulate(spans[:, 0])
        starts[:1] = 0
        following = np.append(starts, size)[np.searchsorted(starts, starts, side="right")]  # bytes of one character
        self._starts = starts
        self._ends = np.maximum(np.maximum.accumulate(spans[:, 1]), following)

    def covering(self, position: int) -> int:
        return int(np.searchsorted(self._ends, position, side="right"))

    def behind(self, position: int) -> int:
        return int(np.searchsorted(self._starts, position, side="left"))
