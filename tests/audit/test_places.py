"""Where a token of a path stands."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.audit.places import locate, spread
from rollbook.trace import ROOT, Message, Origin, Role, RunKind, Trace, make_runs
from tests.audit.build import Build


@given(st.lists(st.integers(0, 3), min_size=1, max_size=6))
def test_every_token_of_a_path_is_found_in_its_node(sizes: list[int]) -> None:
    trace = Trace(Build().trace.head)
    for node, size in enumerate(sizes):
        trace.graph.add(
            Message(role=Role.USER),
            parent=node - 1 if node else ROOT,
            origin=Origin.USER,
            token_ids=np.full(size, node, np.int32),
            runs=make_runs((RunKind.CONTENT, size)),
        )
    expected = [(node, token) for node, size in enumerate(sizes) for token in range(size)]
    assert [locate(trace, range(len(sizes)), place) for place in range(sum(sizes))] == expected


@given(st.integers(0, 200), st.integers(2, 20))
def test_places_are_spread_from_the_first_to_the_last(count: int, most: int) -> None:
    chosen = spread(count, most)
    assert len(chosen) == min(count, most)
    assert not count or (chosen[0], chosen[-1]) == (0, count - 1)
    gaps = np.diff(chosen)
    assert not len(gaps) or gaps.max() - gaps.min() <= 1
