"""Text that cannot steer the terminal, folded visibly; one JSON document whatever is in it."""

from __future__ import annotations

import io
import json
import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from rollbook.cli.screen import console, fold, number, print_json, share, show_table, visible

ANY_TEXT = st.text(st.characters(categories=None) | st.sampled_from("\x1b\r\x07\x9b\u202e\ud800[]"))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred", "\\x1b[31mred"),
        ("a\rb", "a\\rb"),
        ("\x9b2J", "\\x9b2J"),
        ("\u202eabc", "\\u202eabc"),
        ("\ud800", "\\ud800"),
        ("\U000e0041", "\\U000e0041"),
        ("two\nlines\tand 数学 🙂", "two\nlines\tand 数学 🙂"),
    ],
)
def test_what_steers_is_spelled_and_the_rest_is_left(text: str, shown: str) -> None:
    assert visible(text) == shown


@settings(deadline=None)
@given(ANY_TEXT)
def test_nothing_that_steers_comes_through(text: str) -> None:
    kinds = {unicodedata.category(char) for char in visible(text) if char not in "\n\t\u200c\u200d"}
    assert kinds.isdisjoint({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


@settings(deadline=None)
@given(st.text(max_size=400), st.integers(8, 100))
def test_a_fold_keeps_both_ends_and_says_how_much_is_gone(text: str, most: int) -> None:
    folded = fold(text, most, full=False)
    assert fold(text, most, full=True) == text
    if len(text) <= most:
        assert folded == text
        return
    head, tail = most * 3 // 4, most // 4
    assert folded.startswith(text[:head])
    assert folded.endswith(text[-tail:])
    assert f"{len(text) - head - tail} characters left out" in folded


def test_numbers_say_what_is_missing() -> None:
    assert (number(None), number(0.0), number(3), number(0.12345, 2)) == ("-", "0.000", "3", "0.12")
    assert (share(None), share(0.0), share(1 / 3)) == ("-", "0.0 %", "33.3 %")


def test_tables_fit_and_read_no_markup() -> None:
    file = io.StringIO()
    out = Console(file=file, width=100, markup=False, highlight=False, emoji=False)
    show_table(out, "T", ("one", "two"), [("[red]x[/red] :smile: \x1b[1m", "y " * 200)])
    assert "[red]x[/red] :smile: \\x1b[1m" in file.getvalue()
    assert max(map(len, file.getvalue().splitlines())) <= 100


def test_a_console_that_nobody_watches_is_100_wide(capsys: pytest.CaptureFixture[str]) -> None:
    assert console().width == 100
    console(stderr=True).print("[b]x[/b]")
    assert capsys.readouterr() == ("", "[b]x[/b]\n")


def test_json_takes_what_json_lacks(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"a": float("nan"), "b": [float("inf"), (1.5,)], "c": "\ud800é"})
    out = capsys.readouterr().out
    assert out.isascii()
    assert json.loads(out) == {"a": "nan", "b": ["inf", [1.5]], "c": "\ud800é"}
