"""Runs: what each token of a node is, as a run-length list of (kind, count). Masks are derived from runs and never
stored.

A run list is int32 of shape (runs, 2); counts are positive. The same shape serves for policy versions (version,
count) and segments (call, count) over the sampled tokens.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import IntEnum

import numpy as np
import numpy.typing as npt

__all__ = ["NO_RUNS", "RunKind", "Runs", "compress_runs", "expand_runs", "make_runs", "total_runs"]

Runs = npt.NDArray[np.int32]
"""int32, shape (runs, 2): (value, count)."""


class RunKind(IntEnum):
    """What a token is."""

    SCAFFOLD = 0
    """Emitted by the template."""
    CONTENT = 1
    """Text from outside, or a rewritten message."""
    SAMPLED = 2
    """Returned by the engine; the only kind that can be trained."""
    FORCED = 3
    """Put in by us where the model left something open (a close after a cut turn); no logprob, never trained."""


NO_RUNS: Runs = np.zeros((0, 2), np.int32)
"""An empty run list."""


def make_runs(*pairs: tuple[int, int]) -> Runs:
    """A run list from (value, count) pairs; pairs with count 0 are left out."""
    kept = [pair for pair in pairs if pair[1]]
    return np.array(kept, np.int32).reshape(len(kept), 2)


def expand_runs(runs: Runs) -> npt.NDArray[np.int32]:
    """One value a token: int32, shape (sum of counts,)."""
    return np.repeat(runs[:, 0], runs[:, 1])


def compress_runs(values: Sequence[int] | npt.NDArray[np.integer]) -> Runs:
    """The shortest run list that expands to `values`."""
    array = np.asarray(values, np.int32)
    if not len(array):
        return NO_RUNS
    starts = np.flatnonzero(np.concatenate(([True], array[1:] != array[:-1])))
    counts = np.diff(np.concatenate((starts, [len(array)])))
    return np.stack((array[starts], counts.astype(np.int32)), axis=1)


def total_runs(runs: Runs) -> tuple[tuple[int, int], ...]:
    """How often each value is there: (value, count) pairs, the lowest value first."""
    values, places = np.unique(runs[:, 0], return_inverse=True)
    totals = np.zeros(len(values), np.int64)
    np.add.at(totals, places, runs[:, 1])
    return tuple(zip(values.tolist(), totals.tolist(), strict=True))
