"""Routed experts as trainers replay them: a row for the pass over each token but the last.

A sample has them by the token that was sampled from a pass (`Sample.routed_experts`), which is one place later. A
trainer replays every row, so experts that are not known for all passes are refused: 0 would be an expert.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.doors.admission import where
from rollbook.trace.sample import Sample

__all__ = ["all_passes", "by_token", "passes"]


def passes(sample: Sample) -> npt.NDArray[np.int32] | None:
    """int32, shape (tokens - 1, layers, k): entry t is of the pass over token t. None: the sample has none. Raises
    `UsageError` where they are not known for every one."""
    if sample.routed_experts is None or sample.experts_known is None:
        return None
    if not sample.experts_known[1:].all():
        gaps = int((~sample.experts_known[1:]).sum())
        raise UsageError(
            f"{where(sample)}: the routed experts of {gaps} tokens are not known, and this trainer replays them for "
            "all; make the samples without experts"
        )
    return sample.routed_experts[1:].astype(np.int32)


def all_passes(samples: Sequence[Sample]) -> list[npt.NDArray[np.int32]] | None:
    """`passes` of each sample; None: none of them has any. Raises `UsageError` where some have and some have not."""
    found = [passes(sample) for sample in samples]
    known = [each for each in found if each is not None]
    if known and len(known) < len(found):
        sample = next(sample for sample, each in zip(samples, found, strict=True) if each is None)
        raise UsageError(
            f"{where(sample)} has no routed experts, and others of this batch have: make all samples with experts, or "
            "none"
        )
    return known or None


def by_token(given: npt.NDArray[np.integer[Any]]) -> npt.NDArray[np.int32]:
    """`passes` read back, as `Row` has experts: int32, shape (tokens, layers, k), -1 for the first token, which no pass
    gave."""
    return np.concatenate([np.full((1, *given.shape[1:]), -1, np.int32), given.astype(np.int32)])
