"""From a typed async function to a description and a schema."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
import pytest

from rollbook.envs.signature import arguments_of, describe, parameters_schema, takes_self
from rollbook.errors import UsageError


class Spot(msgspec.Struct):
    x: int
    y: int = 0


async def search(query: str, top: int = 5, mode: Literal["fast", "deep"] = "fast", near: Spot | None = None) -> str:
    """Searches the library
    for a text.

    More that the model does not see.

    Args:
        query: what to look for,
            in plain words
        top (int): how many results

    Returns:
        query: not an argument any more, but a line of the same form keeps the last word
    """
    return f"{query}{top}{mode}{near}"


async def loose(left: int, right: int) -> int:
    """Adds.

    left: the first number
    right: the second number
    """
    return left + right


async def bare(text: str) -> str:
    return text


def test_the_description_is_the_first_paragraph_on_one_line() -> None:
    assert describe(search) == "Searches the library for a text."
    assert describe(bare) == ""


def test_the_schema_says_types_defaults_and_what_is_required() -> None:
    schema = parameters_schema(arguments_of(search, "search"), "search")
    assert schema["type"] == "object"
    assert schema["required"] == ["query"]
    assert schema["additionalProperties"] is False
    assert "title" not in schema
    assert schema["properties"]["top"] == {"type": "integer", "description": "how many results", "default": 5}
    assert schema["properties"]["mode"] == {"enum": ["deep", "fast"], "default": "fast"}
    assert schema["$defs"]["Spot"]["required"] == ["x"]


def test_descriptions_of_parameters_come_from_name_and_text_lines() -> None:
    schema = parameters_schema(arguments_of(loose, "loose"), "loose")
    assert schema == {
        "type": "object",
        "properties": {
            "left": {"type": "integer", "description": "the first number"},
            "right": {"type": "integer", "description": "the second number"},
        },
        "required": ["left", "right"],
        "additionalProperties": False,
    }


def test_a_description_goes_on_over_lines_and_stops_at_the_next_section() -> None:
    properties = parameters_schema(arguments_of(search, "search"), "search")["properties"]
    assert properties["query"]["description"] == "what to look for, in plain words"


def test_self_marks_a_method() -> None:
    class Owner:
        async def act(self, text: str) -> str:
            return text

    assert takes_self(Owner.act)
    assert not takes_self(bare)
    assert arguments_of(Owner.act, "act").__struct_fields__ == ("text",)


async def shared(texts: list[str] = ["a"]) -> str:  # noqa: B006 (the fault that is refused)
    return "".join(texts)


def sync(text: str) -> str:
    return text


async def untyped(text) -> str:
    return text


async def starred(*texts: str) -> str:
    return "".join(texts)


async def keywords(**texts: str) -> str:
    return "".join(texts)


async def positional(text: str, /) -> str:
    return text


async def no_json(text: object, number: complex) -> str:
    return f"{text}{number}"


async def lost(text: Nowhere) -> str:  # noqa: F821  # pyright: ignore
    return str(text)


@pytest.mark.parametrize(
    ("function", "problem"),
    [
        (sync, "must be an async function"),
        (untyped, r"tool 'untyped' \(untyped, .*test_signature.py:\d+\): .*'text' has no type"),
        (starred, "no name that the model could use"),
        (keywords, "no name that the model could use"),
        (positional, "no name that the model could use"),
        (no_json, "has no JSON form"),
        (lost, "Nowhere"),
        (shared, r"'shared' \(.*mutable"),
    ],
)
def test_what_cannot_be_offered_is_refused(function: Any, problem: str) -> None:
    with pytest.raises(UsageError, match=problem):
        parameters_schema(arguments_of(function, function.__name__), function.__name__)
