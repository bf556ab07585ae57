"""Sequences put together for a trainer: bins of a token budget, the arrays that tell them apart, and what shared
prefixes would save.

Rule: everything here follows from lengths or from whole sequences, never from what a token's id is, so a padding id
that is also a stop token changes nothing. A sequence is never split; one that fits no bin is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.trace.node import TokenIds

__all__ = ["PrefixReport", "attention_mask", "pack", "position_ids", "prefix_report", "segment_starts"]


def pack(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Bins of at most `budget` tokens: for each the places in `lengths` that it holds, in ascending order.

    First fit, longest first (equal ones in their order), which needs at most 11/9 of the fewest bins and two thirds of
    one (Dosa 2007). The same lengths give the same bins. Raises `UsageError` for a length below 1 or over the budget.
    """
    sizes = np.asarray(lengths, np.int64)
    _check(sizes)
    if (over := np.flatnonzero(sizes > budget)).size:
        raise UsageError(
            f"sequence {over[0]} has {sizes[over[0]]} tokens and a bin {budget}; raise the budget, or leave longer "
            "branches out (max_tokens)"
        )
    room = np.full(len(sizes), budget, np.int64)
    bins: list[list[int]] = []
    order: list[int] = np.argsort(-sizes, kind="stable").tolist()
    for place in order:
        chosen = int(np.argmax(room[: len(bins) + 1] >= sizes[place]))
        if chosen == len(bins):
            bins.append([])
        bins[chosen].append(place)
        room[chosen] -= sizes[place]
    return [sorted(each) for each in bins]


def segment_starts(lengths: Sequence[int]) -> npt.NDArray[np.int32]:
    """Where each packed sequence begins, and behind them where the last one ends (``cu_seqlens``): int32, shape
    (sequences + 1,)."""
    sizes = np.asarray(lengths, np.int64)
    _check(sizes)
    return np.concatenate(([0], sizes.cumsum())).astype(np.int32)


def position_ids(lengths: Sequence[int]) -> npt.NDArray[np.int32]:
    """The position of each token within its own sequence: int32, shape (sum of lengths,)."""
    starts = segment_starts(lengths)
    return np.arange(starts[-1], dtype=np.int32) - starts[:-1].repeat(lengths)


def attention_mask(lengths: Sequence[int], width: int | None = None) -> npt.NDArray[np.bool_]:
    """True where a token of its row is, False where padding stands behind it: bool, shape (sequences, width).

    `width`: None means the longest. Raises `UsageError` where a sequence is longer.
    """
    sizes = np.asarray(lengths, np.int64)
    _check(sizes)
    longest = int(sizes.max(initial=0))
    if width is not None and longest > width:
        raise UsageError(f"a sequence of {longest} tokens does not fit {width} columns; make the batch wider")
    return np.arange(longest if width is None else width) < sizes[:, None]


@dataclass(frozen=True, slots=True)
class PrefixReport:
    """What would be saved if a prefix that several sequences share were computed once."""

    sequences: int = 0
    flat_tokens: int = 0
    """Tokens of all sequences, each by itself."""
    tree_tokens: int = 0
    """Tokens where sequences of one set share their common prefixes."""

    @property
    def saved(self) -> float | None:
        """The share of `flat_tokens` that sharing saves; None: there are no tokens."""
        return 1 - self.tree_tokens / self.flat_tokens if self.flat_tokens else None

    def __add__(self, other: PrefixReport) -> PrefixReport:
        return PrefixReport(
            self.sequences + other.sequences,
            self.flat_tokens + other.flat_tokens,
            self.tree_tokens + other.tree_tokens,
        )


def prefix_report(sets: Iterable[Iterable[TokenIds]]) -> PrefixReport:
    """What sharing would save within each set of sequences: the samples of one rollout, or of one group."""
    return sum((_shared(list(each)) for each in sets), PrefixReport())


def _shared(sequences: Sequence[TokenIds]) -> PrefixReport:
    flat = sum(map(len, sequences))
    # sorted as big-endian bytes, each sequence stands beside one with which it shares most
    ordered = sorted(sequences, key=lambda ids: ids.astype(">i4").tobytes())
    shared = sum(_common(left, right) for left, right in itertools.pairwise(ordered))
    return PrefixReport(len(sequences), flat, flat - shared)


def _common(left: TokenIds, right: TokenIds) -> int:
    """How many tokens two sequences share from the start."""
    length = min(len(left), len(right))
    differs = left[:length] != right[:length]
    return int(differs.argmax()) if differs.any() else length


def _check(sizes: npt.NDArray[np.int64]) -> None:
    if (bad := np.flatnonzero(sizes < 1)).size:
        raise UsageError(f"sequence {bad[0]} has {sizes[bad[0]]} tokens; leave empty ones out")
