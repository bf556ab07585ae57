"""The one conversion of tool results to text."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.envs.convert import MAX_DEPTH, NotConvertible, cut_text, to_text

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


class Colour(StrEnum):
    RED = "red"


class Level(IntEnum):
    HIGH = 3


@dataclass
class Point:
    x: int
    y: float


class Pair(msgspec.Struct):
    left: str
    right: Any = None


@pytest.mark.parametrize(
    ("value", "text", "kind"),
    [
        ({"k": 1}, '{"k": 1}', "dict"),
        (None, "null", "NoneType"),
        (3.5, "3.5", "float"),
        (True, "true", "bool"),
        (7, "7", "int"),
        (["a"], '["a"]', "list"),
        ((1, "é"), '[1, "é"]', "tuple"),
        ("", "", "str"),
        ("null", "null", "str"),
        (Colour.RED, "red", "Colour"),
        (Level.HIGH, "3", "Level"),
        (Point(1, 2.5), '{"x": 1, "y": 2.5}', "Point"),
        (Pair("a", [Point(0, 0.0)]), '{"left": "a", "right": [{"x": 0, "y": 0.0}]}', "Pair"),
        (b"plain", "plain", "bytes"),
        (bytearray("ü".encode()), "ü", "bytearray"),
    ],
)
def test_values_have_one_text(value: object, text: str, kind: str) -> None:
    shown = to_text(value)
    assert (shown.text, shown.value_type, shown.raw) == (text, kind, None)
    assert type(shown.text) is str


def test_bytes_that_are_no_text_keep_their_bytes() -> None:
    shown = to_text(b"\x00\xffa")
    assert shown.text == "\x00\\xffa"
    assert shown.raw == b"\x00\xffa"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, [1.0, math.nan], {"a": {"b": math.inf}}])
def test_numbers_that_json_lacks_are_refused(value: object) -> None:
    with pytest.raises(NotConvertible, match="not a JSON number"):
        to_text(value)


def test_a_number_of_more_digits_than_python_writes_is_refused() -> None:
    with pytest.raises(NotConvertible, match="digits"):
        to_text([10**6000])


@pytest.mark.parametrize(
    ("value", "where"),
    [({1, 2}, "value"), (object(), "value"), ([{"a": {3}}], r"value\[0\]\.a"), (Pair, "value"), (1j, "value")],
)
def test_other_objects_are_refused_with_their_place(value: object, where: str) -> None:
    with pytest.raises(NotConvertible, match=f"^{where}: JSON has no form for"):
        to_text(value)


IMAGE = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBO"}}


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ([{"type": "text", "text": "A plot:"}, IMAGE], r"value\[1\]: a block of type 'image_url'"),
        (IMAGE, "value: a block of type 'image_url'"),
        (({"type": "image", "data": "iVBO", "mimeType": "image/png"},), r"value\[0\]: a block of type 'image'"),
        ([{"type": "image", "source": {"type": "base64", "data": "iVBO"}}], "'image'"),
        ([{"type": "input_audio", "input_audio": {"data": "UklG"}}], "'input_audio'"),
        ([{"type": "resource", "resource": {"uri": "file:///a"}}], "'resource'"),
    ],
)
def test_a_block_that_is_no_text_is_refused_with_its_place(value: object, where: str) -> None:
    with pytest.raises(NotConvertible, match=f"{where}.*only text can be shown"):
        to_text(value)


@pytest.mark.parametrize(
    "value",
    [
        [{"type": "text", "text": "a"}],
        [{"type": "image", "name": "a.png"}],
        {"type": "file", "size": 3},
        [IMAGE["type"]],
    ],
)
def test_other_data_with_a_type_is_data(value: object) -> None:
    assert json.loads(to_text(value).text) == value


@pytest.mark.parametrize("key", [1, None, True, (1,), b"k"])
def test_keys_that_are_no_text_are_refused(key: object) -> None:
    with pytest.raises(NotConvertible, match="is not text"):
        to_text({key: 1})


def test_a_cycle_is_refused() -> None:
    loop: list[object] = []
    loop.append(loop)
    with pytest.raises(NotConvertible, match="cycle"):
        to_text(loop)


def test_deep_containers_are_taken_up_to_the_limit() -> None:
    deep: object = 1
    for _ in range(MAX_DEPTH):
        deep = [deep]
    assert to_text(deep).text.count("[") == MAX_DEPTH
    with pytest.raises(NotConvertible):
        to_text([deep])


@settings(deadline=None)
@given(JSON)
def test_json_values_come_back_equal(value: object) -> None:
    shown = to_text(value)
    assert (shown.text if isinstance(value, str) else json.loads(shown.text)) == value


@settings(deadline=None)
@given(st.text(max_size=60), st.integers(0, 40))
def test_a_cut_is_visible_and_keeps_both_ends(text: str, limit: int) -> None:
    cut = cut_text(text, limit)
    if len(text) <= limit:
        assert cut == text
        return
    head, tail = limit - limit // 2, limit // 2
    marker = f"\n[... {len(text) - limit} of {len(text)} characters left out ...]\n"
    assert cut == text[:head] + marker + text[len(text) - tail :]


def test_no_limit_cuts_nothing() -> None:
    assert cut_text("x" * 10_000, None) == "x" * 10_000
