"""Reads a JSON body strictly: what the server's own model refuses is a 400, what it silently drops is named."""

from __future__ import annotations

from typing import Any, TypeVar, cast

import msgspec

from rollbook.policy.testing.ask import Refused

__all__ = ["names_of", "read", "read_json", "unknown"]

_Type = TypeVar("_Type")


def read_json(body: bytes) -> dict[str, Any]:
    """A JSON object. Raises `Refused`."""
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise Refused(400, f"invalid JSON: {error}") from error
    if not isinstance(found, dict):
        raise Refused(400, "the body is no JSON object")
    return cast("dict[str, Any]", found)


def read(value: object, kind: type[_Type]) -> _Type:
    """`value` as `kind`. Raises `Refused`."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise Refused(400, str(error)) from error


def names_of(kind: type[msgspec.Struct]) -> frozenset[str]:
    """The fields that a body of this kind may have."""
    return frozenset(each.encode_name for each in msgspec.structs.fields(kind))


def unknown(value: object, names: frozenset[str], under: str = "") -> tuple[str, ...]:
    """Fields of `value` that are not among `names`; none where it is no object."""
    if not isinstance(value, dict):
        return ()
    return tuple(f"{under}{name}" for name in cast("dict[str, Any]", value) if name not in names)
