"""Where the tokens of one encoded stretch lie in its text.

The bytes of the tokens say it exactly, whatever offsets the tokenizers library reports (Unigram gives all bytes of
several unknown characters one span). A dummy blank belongs to the character behind it. Only where a normalizer has
changed the text (NFC) the library's own offsets count; what lies between two tokens then belongs to the earlier.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from tokenizers import Encoding

__all__ = ["Offsets"]

_Places = npt.NDArray[np.int64]


class Offsets:
    """First and last characters of tokens, in positions of the whole text."""

    __slots__ = ("_ends", "_starts")

    def __init__(self, encoding: Encoding, spelled: list[bytes], text: str, start: int) -> None:
        starts, ends = _from_bytes(spelled, text) or _from_library(encoding, len(text))
        self._starts, self._ends = starts + start, ends + start

    def covering(self, position: int) -> int:
        """The first token that ends behind `position`."""
        return int(np.searchsorted(self._ends, position, side="right"))

    def behind(self, position: int) -> int:
        """The first token that starts at `position` or later."""
        return int(np.searchsorted(self._starts, position, side="left"))


def _from_bytes(spelled: list[bytes], text: str) -> tuple[_Places, _Places] | None:
    """None where the tokens do not spell `text`, with or without a blank before it."""
    data, found = text.encode(), b"".join(spelled)
    blank = len(found) - len(data)
    if blank not in (0, 1) or found != b" " * blank + data:
        return None
    # the character that each byte belongs to; a blank of the tokenizer's own lies within the first one
    heads = np.frombuffer(found, np.uint8) & 0xC0 != 0x80
    owner = np.maximum(np.cumsum(heads) - 1 - blank, 0)
    ends = np.cumsum([len(each) for each in spelled], dtype=np.int64)
    lengths = np.diff(ends, prepend=0)
    first, last = np.minimum(ends - lengths, len(found) - 1), np.maximum(ends - 1, 0)
    return owner[first], owner[last] + 1


def _from_library(encoding: Encoding, size: int) -> tuple[_Places, _Places]:
    spans = np.array(encoding.offsets, np.int64).reshape(-1, 2)
    starts = np.maximum.accumulate(spans[:, 0])
    starts[:1] = 0
    following = np.append(starts, size)[np.searchsorted(starts, starts, side="right")]  # bytes of one character share
    ends = np.maximum(np.maximum.accumulate(spans[:, 1]), following)
    return starts, ends
