"""Growing arrays: the token store of a graph.

Rules: appending is amortised O(new) and wastes at most a fifth of what is held; what was once written never changes, so
a view taken earlier stays right; views are read-only.
"""

from __future__ import annotations

from typing import Any, Self

import numpy as np
import numpy.typing as npt

__all__ = ["Column"]

_SMALLEST = 32


class Column:
    """A growing array of rows; `dtype` and the shape of a row are fixed."""

    __slots__ = ("_buffer", "_size")

    def __init__(self, dtype: npt.DTypeLike, *row: int) -> None:
        self._buffer: npt.NDArray[Any] = np.empty((0, *row), dtype)
        self._size = 0

    @classmethod
    def of(cls, *parts: npt.NDArray[Any]) -> Self:
        """A column of these rows, at least one part, copied once and without slack."""
        joined = np.concatenate(parts)
        column = cls(joined.dtype, *joined.shape[1:])
        column._buffer, column._size = joined, len(joined)
        return column

    def __len__(self) -> int:
        return self._size

    @property
    def view(self) -> npt.NDArray[Any]:
        """All rows, read-only, without a copy."""
        return self.slice(0, self._size)

    def slice(self, start: int, stop: int) -> npt.NDArray[Any]:
        """Rows `start` to `stop`, read-only, without a copy."""
        view = self._buffer[start : min(stop, self._size)]
        view.flags.writeable = False
        return view

    def extend(self, rows: npt.NDArray[Any]) -> None:
        """Append `rows`, which must have the column's dtype and row shape."""
        count = len(rows)
        if not count:
            return
        end = self._size + count
        if end > len(self._buffer):
            self._grow(end)
        self._buffer[self._size : end] = rows
        self._size = end

    def append(self, row: Any) -> None:
        """Append one row."""
        if self._size == len(self._buffer):
            self._grow(self._size + 1)
        self._buffer[self._size] = row
        self._size += 1

    @property
    def nbytes(self) -> int:
        """Bytes held, slack included."""
        return self._buffer.nbytes

    def _grow(self, needed: int) -> None:
        capacity = max(needed, _SMALLEST, len(self._buffer) * 5 // 4)
        bigger = np.empty((capacity, *self._buffer.shape[1:]), self._buffer.dtype)
        bigger[: self._size] = self._buffer[: self._size]
        self._buffer = bigger
