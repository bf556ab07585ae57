"""Convention F as a batch: a row for each branch, padded on the right."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["padded"]


def padded(rows: Iterable[npt.NDArray[Any]], fill: int, kind: type[np.generic]) -> npt.NDArray[Any]:
    """The rows as one array of `kind`, shape (rows, longest), with `fill` behind the shorter ones."""
    given = list(rows)
    made = np.full((len(given), max(map(len, given))), fill, kind)
    for place, row in enumerate(given):
        made[place, : len(row)] = row
    return made
