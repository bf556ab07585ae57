"""Run lists: compressing and expanding are inverse, and nothing is stored for nothing."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.trace import NO_RUNS, RunKind, compress_runs, expand_runs, make_runs


@given(st.lists(st.integers(0, 3)))
def test_compressing_and_expanding_are_inverse(values: list[int]) -> None:
    runs = compress_runs(values)
    assert (runs.dtype, runs.shape[1]) == (np.int32, 2)
    assert expand_runs(runs).tolist() == values
    assert (runs[1:, 0] != runs[:-1, 0]).all()
    assert (runs[:, 1] > 0).all()


def test_making_leaves_out_what_is_empty() -> None:
    runs = make_runs((RunKind.SCAFFOLD, 3), (RunKind.CONTENT, 0), (RunKind.SAMPLED, 2))
    assert runs.tolist() == [[0, 3], [2, 2]]
    assert make_runs().shape == make_runs((1, 0)).shape == NO_RUNS.shape == (0, 2)


def test_only_one_kind_of_token_can_be_trained() -> None:
    assert [kind.name for kind in RunKind] == ["SCAFFOLD", "CONTENT", "SAMPLED", "FORCED"]
    assert RunKind.SAMPLED == 2
