"""Where one token of a branch stands in the record, and which places of a long trace are looked at."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rollbook.trace.node import TOKENS
from rollbook.trace.trace import Trace

__all__ = ["locate", "spread"]


def locate(trace: Trace, nodes: Sequence[int], place: int) -> tuple[int, int]:
    """The node, and the position among its token ids, of the token at `place` along a path of nodes that has it."""
    ends = np.cumsum(trace.graph.counts()[list(nodes), TOKENS])
    nth = int(np.searchsorted(ends, place, side="right"))
    return nodes[nth], place - (int(ends[nth - 1]) if nth else 0)


def spread(count: int, most: int) -> list[int]:
    """At most `most` of `count` places, evenly spread, first and last included."""
    return sorted({int(place) for place in np.linspace(0, count - 1, min(most, count))})
