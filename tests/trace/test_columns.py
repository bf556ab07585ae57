"""Columns: growing keeps what was written, and views stay right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.trace.columns import Column


@given(st.lists(st.lists(st.integers(-9, 9), max_size=50), max_size=12))
def test_a_column_holds_what_was_put_in(chunks: list[list[int]]) -> None:
    column, whole = Column(np.int32), []
    views = []
    for chunk in chunks:
        column.extend(np.array(chunk, np.int32))
        whole += chunk
        views.append((column.view, list(whole)))
    assert len(column) == len(whole)
    assert all(view.tolist() == wanted for view, wanted in views)
    assert column.slice(1, 3).tolist() == whole[1:3]


def test_a_column_of_parts_is_its_own_and_goes_on() -> None:
    part = np.arange(3, dtype=np.int32)
    column = Column.of(part, np.array([9], np.int32))
    assert column.nbytes == 16
    seen = column.view
    part[0] = 7
    column.extend(part)
    assert (seen.tolist(), column.view.tolist()) == ([0, 1, 2, 9], [0, 1, 2, 9, 7, 1, 2])


def test_rows_have_a_shape() -> None:
    column = Column(np.int32, 2)
    assert column.view.shape == (0, 2)
    for value in range(40):
        column.append((value, -value))
    assert column.view[39].tolist() == [39, -39]


def test_slack_is_at_most_a_fifth() -> None:
    column = Column(np.int32)
    for size in range(1, 3000, 7):
        column.extend(np.zeros(7, np.int32))
        if size > 200:
            assert column.nbytes - 4 * len(column) <= column.nbytes / 5


def test_views_are_read_only() -> None:
    column = Column(np.float32)
    column.append(1.0)
    with pytest.raises(ValueError, match="read-only"):
        column.view[0] = 2.0
