"""Tracked text: the text is always that of `str`; content never becomes scaffold."""

from __future__ import annotations

import operator
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.render.tracked import CONTENT, SCAFFOLD, Tracked, concat, message_tag, scaffold, tags_of

# Disjoint alphabets, each with blanks and a line end of its own, so that a character tells where it came from.
OURS = "AB<|> \n"
THEIRS = "ab{}\t\r"
pieces = st.lists(st.text(OURS, max_size=4).map(scaffold) | st.text(THEIRS, max_size=4), max_size=6)
mixed = pieces.map(concat)
either = st.text(OURS, max_size=2).map(scaffold) | st.text(THEIRS, max_size=2) | st.text(OURS + THEIRS, max_size=2)
filled = either.filter(bool)
small = st.integers(-3, 5)


def flat(value: object) -> list[str]:
    return [value] if isinstance(value, str) else list(value)  # type: ignore[call-overload]


def plain(value: object) -> object:
    if isinstance(value, Tracked):
        return value.plain
    if isinstance(value, list | tuple):
        return type(value)(map(plain, value))
    return value


def check(made: object, expected: object) -> None:
    assert made == expected
    for text in flat(made):
        assert len(tags_of(text)) == len(text)
        assert all(tag != SCAFFOLD or char in OURS for char, tag in zip(str(text), tags_of(text), strict=True))


def agree(method: Callable[..., object], *args: object) -> None:
    check(method(*args), method(*map(plain, args)))


@settings(deadline=None)
@given(mixed, either, either, small)
def test_operators(text: Tracked, other: str, third: str, times: int) -> None:
    agree(operator.add, text, other)
    agree(operator.add, other, text)
    agree(operator.mul, text, times)
    agree(operator.mul, times, text)
    agree(lambda t, items: t.join(items), text, [other, text, third])
    agree(list, text)
    check(concat([text, other, 7]), text.plain + other + "7")


@settings(deadline=None)
@given(mixed, st.none() | small, st.none() | small, st.none() | small.filter(bool))
def test_slices(text: Tracked, start: int | None, end: int | None, step: int | None) -> None:
    agree(operator.getitem, text, slice(start, end, step))
    if text:
        agree(operator.getitem, text, (start or 0) % len(text))


@settings(deadline=None)
@given(mixed, filled, small)
@pytest.mark.parametrize("method", [str.split, str.rsplit])
def test_splits(method: Callable[..., list[str]], text: Tracked, sep: str, count: int) -> None:
    name = method.__name__
    agree(lambda t, s, n: getattr(t, name)(s, n), text, sep, count)
    agree(lambda t, n: getattr(t, name)(None, n), text, count)
    agree(lambda t: getattr(t, name)(), text)


@settings(deadline=None)
@given(mixed, filled)
def test_parts(text: Tracked, sep: str) -> None:
    agree(lambda t, s: t.partition(s), text, sep)
    agree(lambda t, s: t.rpartition(s), text, sep)
    agree(lambda t: t.splitlines(), text)
    agree(lambda t: t.splitlines(keepends=True), text)


@settings(deadline=None)
@given(mixed, st.none() | either)
def test_strips(text: Tracked, chars: str | None) -> None:
    agree(lambda t, c: t.strip(c), text, chars)
    agree(lambda t, c: t.lstrip(c), text, chars)
    agree(lambda t, c: t.rstrip(c), text, chars)
    agree(lambda t, c: t.removeprefix(c), text, chars or "")
    agree(lambda t, c: t.removesuffix(c), text, chars or "")


@settings(deadline=None)
@given(mixed, either, either, small)
def test_replace(text: Tracked, old: str, new: str, count: int) -> None:
    agree(lambda t, o, n, c: t.replace(o, n, c), text, old, new, count)


@settings(deadline=None)
@given(st.text(), st.sampled_from(["lower", "upper", "title", "capitalize", "swapcase", "casefold"]))
def test_case_keeps_tags_where_the_length_is_kept(text: str, name: str) -> None:
    made = getattr(scaffold(text), name)()
    assert made == getattr(text, name)()
    assert set(tags_of(made)) <= {SCAFFOLD if len(made) == len(text) else CONTENT}


@settings(deadline=None)
@given(mixed)
def test_what_is_not_overridden_counts_as_content(text: Tracked) -> None:
    for made in (text.ljust(9), text.expandtabs(), text.zfill(9), text.translate({65: "x"}), scaffold("%s") % "x"):
        assert type(made) is str
        assert set(tags_of(made)) <= {CONTENT}


def test_where_characters_cannot_be_followed_all_is_content() -> None:
    grown = scaffold("<\u00df>").upper()
    assert (grown, tags_of(grown)) == ("<SS>", CONTENT * 4)
    spread = (scaffold("<") + "|" + scaffold(">")).replace("", "-")
    assert (spread, tags_of(spread)) == ("-<-|->-", CONTENT * 7)


def test_scaffold_keeps_its_place() -> None:
    text = scaffold("<") + "mid" + scaffold(">")
    assert tags_of(text) == "scccs"
    assert tags_of(text.replace("mid", scaffold("M"))) == "sss"
    assert [tags_of(part) for part in (text + text).split("mid")] == ["s", "ss", "s"]
    assert str(text) is text
    assert type(text.plain) is str


def test_plain_text_is_content_even_if_it_was_scaffold() -> None:
    assert tags_of(Tracked(scaffold("<|im_end|>"))) == CONTENT * 10
    assert tags_of(str.upper(scaffold("a"))) == CONTENT


def test_tags_must_fit() -> None:
    with pytest.raises(ValueError, match="2 characters but 1 tags"):
        Tracked("ab", "s")


def test_other_things_cannot_be_added() -> None:
    for left, right in ((scaffold("a"), 5), (5, scaffold("a")), (scaffold("a"), None), ([], scaffold("a"))):
        with pytest.raises(TypeError):
            operator.add(left, right)


def test_join_refuses_what_str_refuses() -> None:
    with pytest.raises(TypeError, match="expected str instance"):
        scaffold(",").join([1])  # type: ignore[list-item]


def test_message_tags_are_content() -> None:
    tags = {message_tag(index) for index in range(2000)}
    assert len(tags) == 2000
    assert SCAFFOLD not in tags
    assert message_tag(1 << 20) == CONTENT
