"""Spelling: the shortest decimal that gives a float32 back, and lists that JSON reads back."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.export.decimals import shortest, spell, spell_floats

FLOATS = st.floats(width=32, allow_nan=False, allow_infinity=False)


def digits(text: str) -> int:
    """Significant digits of a decimal."""
    return len(text.lower().partition("e")[0].lstrip("-").replace(".", "").strip("0"))


@given(st.lists(FLOATS, max_size=30))
@settings(max_examples=200, deadline=None)
def test_a_float32_comes_back_bit_for_bit_from_as_few_digits_as_numpy_needs(values: list[float]) -> None:
    array = np.array(values, np.float32)
    found = shortest(array)
    assert found.astype(np.float32).tobytes() == array.tobytes()
    for value, near in zip(array, found.tolist(), strict=True):
        if value and 1e-13 <= abs(value) < 1e13:
            assert digits(repr(near)) == digits(np.format_float_scientific(value))


@pytest.mark.parametrize("value", [-0.1, -0.5, -1e-7, 1e-45, 3.4e38, -16777216.0, -0.30000001, 0.0])
def test_a_few_numbers(value: float) -> None:
    array = np.array([value], np.float32)
    assert np.array(json.loads(spell_floats(array)), np.float32).tobytes() == array.tobytes()


@given(st.lists(st.none() | FLOATS, max_size=20))
@settings(deadline=None)
def test_absent_floats_are_null(values: list[float | None]) -> None:
    array = np.array([math.nan if value is None else value for value in values], np.float32)
    read = json.loads(spell_floats(array))
    assert [each is None for each in read] == [value is None for value in values]
    assert [np.float32(each) for each in read if each is not None] == [np.float32(v) for v in values if v is not None]


@given(st.lists(st.tuples(st.integers(-(2**31), 2**31 - 1), st.integers(1, 9)), max_size=12))
def test_whole_numbers_come_back_whether_they_run_or_not(runs: list[tuple[int, int]]) -> None:
    values = [value for value, count in runs for _ in range(count)]
    assert json.loads(spell(np.array(values, np.int32))) == values
    mask = [value % 2 == 0 for value in values]
    assert json.loads(spell(np.array(mask, np.bool_))) == [int(each) for each in mask]
