"""Values that a form writes as raw text, given the types of the tool's schema.

The table, from top to bottom; the first type that the schema allows, that the text spells, and whose value the
parameter's schema takes is the one:

| type | text that spells it |
|---|---|
| null | ``null`` |
| boolean | ``true``, ``false`` |
| integer | JSON's spelling without fraction and exponent, at most 64 bits (``007`` and ``+1`` are not) |
| number | JSON's spelling, finite |
| object, array | exact JSON |
| string | any text, as it is |

A schema that names no type allows text only, so an untyped ``true`` stays text. Which types a schema allows comes
from ``type``, ``enum``, ``const``, ``anyOf``, ``oneOf``, ``allOf`` and ``$ref`` into the tool's own schema. Inside
objects and arrays, where JSON has types of its own, a string becomes a boolean, an integer or a number by the same
table where its schema takes no string. Text that spells nothing the schema allows is `bad_arguments`.

Forms whose templates print Python's ``str`` of a value also spell ``True``, ``False`` and ``None`` so.

What is made here is for the tool alone. History keeps the sampled ids and is never rendered again from these values,
for the way back is not unique.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, cast

from rollbook.render.calls import Refused, Schema, holds_big, read_json
from rollbook.trace.message import ParseStatus

__all__ = ["typed_arguments", "typed_arguments_python"]

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?")
_ORDER = ("null", "boolean", "integer", "number", "object", "array", "string")
_WORDS: dict[str, Any] = {"null": None, "true": True, "false": False}
_PYTHON_WORDS = {**_WORDS, "None": None, "True": True, "False": False}
_MAX_BRANCHES = 64
_ANY: dict[str, Any] = {}
_NONE: list[Any] = []


def typed_arguments(texts: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """Values for texts; raises `Refused` (`bad_arguments`) with the first that fits nothing."""
    return _arguments(texts, schema, _WORDS)


def typed_arguments_python(texts: dict[str, Any], schema: Schema) -> dict[str, Any]:
    """The same, with Python's words for null, true and false beside JSON's."""
    return _arguments(texts, schema, _PYTHON_WORDS)


def _arguments(texts: dict[str, Any], schema: Schema, words: dict[str, Any]) -> dict[str, Any]:
    whole = list(_branches(schema.schema, schema))
    return {key: _value(key, text, _property(whole, key), schema, words) for key, text in texts.items()}


def _property(branches: list[dict[str, Any]], key: str) -> Any:
    """The schema of one key of an object; an empty one where nothing is said of it."""
    for branch in branches:
        known = _dict(branch.get("properties"))
        if key in known:
            return known[key]
    return next((branch["additionalProperties"] for branch in branches if "additionalProperties" in branch), _ANY)


def _value(key: str, text: str, schema: Any, root: Schema, words: dict[str, Any]) -> Any:
    branches = list(_branches(schema, root))
    allowed = _allowed(branches)
    fitting = [value for kind in _ORDER if kind in allowed for value in _spelled(kind, text, words)]
    candidates = [_inside(value, branches, root) for value in fitting]
    if not candidates:
        kinds = " or ".join(kind for kind in _ORDER if kind in allowed) or "that its schema allows"
        raise Refused(ParseStatus.BAD_ARGUMENTS, f"arguments.{key}: {text[:60]!r} spells no {kinds}")
    if len(candidates) == 1:
        return candidates[0]
    takes = root.evolve(schema=schema)  # pyright: ignore[reportUnknownMemberType]
    return next((value for value in candidates if takes.is_valid(value)), candidates[-1])  # pyright: ignore[reportUnknownMemberType]


def _spelled(kind: str, text: str, words: dict[str, Any]) -> Iterator[Any]:
    """The value of type `kind` that `text` spells, where it spells one."""
    match kind:
        case "string":
            yield text
        case "null" | "boolean":
            if text in words and (words[text] is None) == (kind == "null"):
                yield words[text]
        case "integer" | "number":
            pattern = _INTEGER if kind == "integer" else _NUMBER
            if pattern.fullmatch(text) and not holds_big(value := read_json(text)):
                yield value
        case _:
            yield from _container(text, dict if kind == "object" else list)


def _container(text: str, kind: type[Any]) -> Iterator[Any]:
    try:
        value = read_json(text)
    except ValueError:
        return
    if isinstance(value, kind) and not holds_big(value):
        yield value


def _allowed(branches: list[dict[str, Any]]) -> set[str]:
    """The types that a schema, taken apart, allows."""
    found: set[str] = set()
    for branch in branches:
        found |= _types(branch)
    return found or {"string"}


def _types(branch: dict[str, Any]) -> set[str]:
    named = branch.get("type")
    if named is not None:
        kinds = set(cast("list[str]", named)) if isinstance(named, list) else {str(named)}
        return kinds | ({"integer"} if "number" in kinds else set())
    values = cast("list[Any]", branch.get("enum", [branch["const"]] if "const" in branch else []))
    return {_type_of(value) for value in values}


def _type_of(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float():
            return "number"
        case str():
            return "string"
        case _:
            return "object" if isinstance(value, dict) else "array"


def _branches(schema: Any, root: Schema) -> Iterator[dict[str, Any]]:
    """The schema and all that it is put together from, references followed; at most `_MAX_BRANCHES`."""
    waiting, seen = [schema], 0
    known: set[int] = set()
    while waiting and seen < _MAX_BRANCHES:
        taken = waiting.pop(0)
        if not isinstance(taken, dict) or id(cast("Any", taken)) in known:
            continue
        branch = cast("dict[str, Any]", taken)
        known.add(id(branch))
        seen += 1
        yield branch
        for name in ("anyOf", "oneOf", "allOf"):
            waiting += cast("list[Any]", branch.get(name, []))
        if "$ref" in branch:
            waiting.append(_referred(branch["$ref"], root.schema))


def _referred(reference: Any, root: Any) -> Any:
    """What a local reference points at; None where it is not in the tool's schema (the check says so)."""
    if not isinstance(reference, str) or not reference.startswith("#"):
        return None
    found = root
    for part in reference[1:].split("/")[1:]:
        found = _dict(found).get(part.replace("~1", "/").replace("~0", "~"))
    return found


def _inside(value: Any, branches: list[dict[str, Any]], root: Schema) -> Any:
    """A JSON value with its strings converted where the schema takes none."""
    match value:
        case dict():
            items = cast("dict[str, Any]", value)
            return {key: _part(item, _property(branches, key), root) for key, item in items.items()}
        case list():
            pick = _item_schema(branches)
            return [_part(item, pick(place), root) for place, item in enumerate(cast("list[Any]", value))]
        case _:
            return value


def _item_schema(branches: list[dict[str, Any]]) -> Callable[[int], Any]:
    first = next((cast("list[Any]", branch["prefixItems"]) for branch in branches if "prefixItems" in branch), _NONE)
    rest = next((branch["items"] for branch in branches if "items" in branch), _ANY)
    return lambda place: first[place] if place < len(first) else rest


def _part(value: Any, schema: Any, root: Schema) -> Any:
    if not isinstance(value, str | dict | list):
        return value
    branches = list(_branches(schema, root))
    if not isinstance(value, str):
        return _inside(cast("Any", value), branches, root)
    allowed = _allowed(branches)
    if "string" in allowed:
        return value
    kinds = [kind for kind in ("boolean", "integer", "number") if kind in allowed]
    return next((found for kind in kinds for found in _spelled(kind, value, _WORDS)), value)


def _dict(value: Any) -> dict[str, Any]:
    return cast("dict[str, Any]", value) if isinstance(value, dict) else {}
