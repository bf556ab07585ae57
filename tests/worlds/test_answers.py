"""The last number of an answer."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.worlds.answers import last_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("The answer is 84.", 84),
        ("12*7=84", 84),
        ("84", 84),
        ("-5", -5),
        ("= -5", -5),
        ("\u22125", -5),
        ("(-5)", -5),
        ("12-5", 5),
        ("12 - 5", 5),
        ("(3)-2", 2),
        ("5 - -3", -3),
        ("1,234.", 1234),
        ("1,000,000!", 1000000),
        ("7.5.", Fraction(15, 2)),
        ("first 3, then 4", 4),
        ("**84**", 84),
        ("$40", 40),
        ("40%", 40),
        ("x=7", 7),
        ("\\boxed{84}", 84),
        ("84\n\nDone", 84),
        ("3 apples and v2", 3),
        ("the 5th of 7", 7),
    ],
)
def test_a_number_is_read(text: str, number: Fraction | int) -> None:
    assert last_number(text) == number


@pytest.mark.parametrize(
    "text", ["", "none", "v2", "2nd", "1,23", "1.2.3", "1e5", "-.5", "٣", "²", "eighty-four", "9" * 500]
)
def test_what_is_no_number_is_none(text: str) -> None:
    assert last_number(text) is None


@settings(deadline=None)
@given(st.integers(-(10**9), 10**9), st.sampled_from(["{}", "It is {}.", "{} apples", "a {:,} b", "12 then {}"]))
def test_written_numbers_come_back(number: int, form: str) -> None:
    assert last_number(form.format(number)) == number


@settings(deadline=None)
@given(st.text())
def test_no_text_breaks_it(text: str) -> None:
    last_number(text)
