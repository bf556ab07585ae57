"""One attempted tool call: what its body said, checked against the tools that were offered.

A family's reader makes an `Attempt` of a body or raises `Refused`; `CallReader` does the rest, alike for all
families. Order of checks, the first that fails gives the status: the body is in the family's form (UTF-8; where it
is JSON, exact JSON: no NaN or Infinity, no duplicate keys, nesting of at most `MAX_DEPTH`): `invalid_json`; an
object: `not_an_object`; a name that is a string: `missing_name`; arguments that are there and an object:
`not_an_object`; numbers of at most 64 bits and no key that the family does not have: `bad_arguments`; a tool of that
name: `unknown_tool`; arguments that fit the tool's JSON schema: `bad_arguments`. Nothing is repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, TypeAlias, cast

from jsonschema import Draft202012Validator
from jsonschema.exceptions import (
    SchemaError,
    ValidationError,
    best_match,  # pyright: ignore[reportUnknownVariableType] (jsonschema is only partly typed; likewise below)
)
from referencing import Registry
from referencing.exceptions import Unresolvable

from rollbook.errors import ConfigError
from rollbook.render.vocabulary import show_bytes
from rollbook.trace.message import ParseStatus, ToolCall
from rollbook.trace.tools import ToolSpec

__all__ = [
    "MAX_DEPTH",
    "Attempt",
    "CallReader",
    "Refused",
    "Schema",
    "call_of",
    "holds_big",
    "json_arguments",
    "json_call",
    "json_sequence",
    "read_json",
    "text_of",
]

MAX_DEPTH = 64
"""How deep objects and lists may nest in a call."""
MAX_ERROR = 240
"""Characters of an error text; it goes into the policy's next prompt."""
MAX_CACHED = 1024
"""Compiled schemas kept."""

_SPACE = re.compile(r"[ \t\n\r]*")
_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)


class _NotJson(ValueError):
    """The body is not the JSON that we take."""


class Refused(Exception):
    """The call does not run, and why. Keeps what was read before the fault."""

    def __init__(self, status: ParseStatus, why: str, *, native_id: str | None = None, name: str | None = None) -> None:
        super().__init__(why)
        self.status = status
        self.native_id = native_id
        self.name = name


Schema: TypeAlias = Draft202012Validator
"""A tool's parameters, compiled."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """What a body says, in its family's form; nothing is known yet of the tools."""

    name: str
    arguments: dict[str, Any]
    """As the form gives them; in a form without types, every value is text."""
    native_id: str | None = None
    """The id that the policy wrote; None where it wrote none."""
    convert: Callable[[dict[str, Any], Schema], dict[str, Any]] | None = None
    """For a form without types: gives the values the types of the tool's schema. Raises `Refused`."""
    surplus: str | None = None
    """What is wrong with a key that the form does not have; None: there is none."""


class _BigNumber:
    """Stands for a number beyond 64 bits until the body is known to be JSON."""


def _refuse_constant(name: str) -> NoReturn:
    raise _NotJson(f"{name} is not JSON")


def _read_int(digits: str) -> Any:
    if len(digits) > 20:
        return _BigNumber
    number = int(digits)
    return number if -(1 << 63) <= number < 1 << 64 else _BigNumber


def _read_float(digits: str) -> Any:
    number = float(digits)
    return number if abs(number) != float("inf") else _BigNumber


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        seen: set[str] = set()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise _NotJson(f"the key {twice[:60]!r} stands twice")
    return made


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_int=_read_int, parse_float=_read_float
)


def read_json(text: str) -> Any:
    """`text` as exact JSON; raises `ValueError` with a reason that a policy can use. Numbers beyond 64 bits come as
    a marker."""
    _bound_depth(text)
    return _DECODER.decode(text)


def _bound_depth(text: str) -> None:
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _NotJson(f"it nests deeper than {MAX_DEPTH}")


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest


class CallReader:
    """Checks attempts against tools; keeps compiled schemas."""

    def __init__(self) -> None:
        self._compiled: dict[int, tuple[ToolSpec, Schema]] = {}

    def read(self, read: Callable[[], Attempt], raw: bytes, tools: Sequence[ToolSpec], call_id: str) -> ToolCall:
        """The call that `read` makes of the body `raw`, with its status; `call_id` where the policy wrote no id."""
        name: str | None = None
        arguments: dict[str, Any] | None = None
        native: str | None = None
        status, error = ParseStatus.OK, None
        try:
            attempt = read()
            name, native = attempt.name, attempt.native_id
            arguments = None if attempt.convert is not None else attempt.arguments
            arguments = self._checked(attempt, tools)
        except Refused as refused:
            status, error = refused.status, str(refused)[:MAX_ERROR]
            native, name = native or refused.native_id, name or refused.name
        shown = show_bytes(raw)
        return ToolCall(id=native or call_id, name=name, arguments=arguments, raw=shown, status=status, error=error)

    def _checked(self, attempt: Attempt, tools: Sequence[ToolSpec]) -> dict[str, Any]:
        if attempt.surplus is not None:
            raise Refused(ParseStatus.BAD_ARGUMENTS, attempt.surplus)
        tool = next((tool for tool in tools if tool.name == attempt.name), None)
        if tool is None:
            raise Refused(ParseStatus.UNKNOWN_TOOL, _unknown(attempt.name, tools))
        validator = self._validator(tool)
        try:
            arguments = attempt.arguments
            if attempt.convert is not None:
                arguments = attempt.convert(arguments, validator)
            problem = self._problem(validator, arguments)
        except Unresolvable as error:
            raise ConfigError(f"tool {tool.name}: its schema refers to {error.ref!r}, which is not in it") from error
        except RecursionError as error:
            raise ConfigError(f"tool {tool.name}: its schema refers to itself without end") from error
        if problem is not None:
            raise Refused(ParseStatus.BAD_ARGUMENTS, problem)
        return arguments

    @staticmethod
    def _problem(validator: Schema, arguments: Any) -> str | None:
        found = cast("ValidationError | None", best_match(validator.iter_errors(arguments)))  # pyright: ignore
        if found is None:
            return None
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.absolute_path)
        return f"arguments{path}: {found.message}"

    def _validator(self, tool: ToolSpec) -> Schema:
        kept = self._compiled.get(id(tool))
        if kept is not None and kept[0] is tool:
            return kept[1]
        try:
            Draft202012Validator.check_schema(tool.parameters)
        except SchemaError as error:
            raise ConfigError(f"tool {tool.name}: its parameters are not a JSON schema: {error.message}") from error
        if len(self._compiled) >= MAX_CACHED:
            self._compiled.clear()
        validator = Draft202012Validator(tool.parameters, registry=Registry())  # an empty one: nothing is ever fetched
        self._compiled[id(tool)] = (tool, validator)
        return validator


def text_of(body: bytes) -> str:
    """The body as text, or a refusal."""
    try:
        return body.decode("utf-8")
    except ValueError as problem:
        raise Refused(ParseStatus.INVALID_JSON, f"the tool call is not UTF-8: {problem}") from problem


def json_call(text: str, arguments_key: str = "arguments", *, id_key: str | None = None) -> Attempt:
    """An object with ``name`` and `arguments_key`, and no key beside them but `id_key`."""
    try:
        value = read_json(text)
    except ValueError as problem:
        raise Refused(ParseStatus.INVALID_JSON, f"the tool call is not valid JSON: {problem}") from problem
    return call_of(value, arguments_key, id_key=id_key)


def call_of(value: Any, arguments_key: str, *, id_key: str | None = None) -> Attempt:
    """The attempt that a JSON value is."""
    if not isinstance(value, dict):
        raise Refused(ParseStatus.NOT_AN_OBJECT, "the tool call is JSON but not an object")
    fields = cast("dict[str, Any]", value)
    native: str | None = fields.get(id_key) if id_key is not None else None
    name = fields.get("name")
    if not isinstance(name, str):
        raise Refused(ParseStatus.MISSING_NAME, 'the tool call has no "name" that is a string')
    further = sorted(fields.keys() - {"name", arguments_key, id_key})
    surplus = f'only "name" and "{arguments_key}" may be given, not {further[0][:60]!r}' if further else None
    arguments = _arguments(fields, arguments_key, name, native)
    return Attempt(name=name, arguments=arguments, native_id=native, surplus=surplus)


def json_arguments(text: str, name: str, native_id: str | None = None) -> Attempt:
    """An attempt whose name stands outside the JSON, which is the arguments alone."""
    try:
        fields = {"arguments": read_json(text)}
    except ValueError as problem:
        why = f"the arguments are not valid JSON: {problem}"
        raise Refused(ParseStatus.INVALID_JSON, why, native_id=native_id, name=name) from problem
    arguments = _arguments(fields, "arguments", name, native_id)
    return Attempt(name=name, arguments=arguments, native_id=native_id)


def json_sequence(text: str, separator: str) -> list[tuple[str, Any]]:
    """Several JSON values with `separator` between them: each with its text. Raises `ValueError`."""
    _bound_depth(text)
    found: list[tuple[str, Any]] = []
    at = 0
    while True:
        start = _skip_space(text, at)
        value, end = _DECODER.raw_decode(text, start)
        found.append((text[start:end], value))
        at = _skip_space(text, end)
        if at == len(text):
            return found
        if text[at] != separator:
            raise _NotJson(f"something other than {separator!r} stands behind a value (character {at})")
        at += 1


def _skip_space(text: str, at: int) -> int:
    found = _SPACE.match(text, at)
    return at if found is None else found.end()


def _arguments(fields: dict[str, Any], key: str, name: str, native: str | None) -> dict[str, Any]:
    arguments = fields.get(key)
    if not isinstance(arguments, dict):
        why = f'"{key}" must be there and be a JSON object'
        raise Refused(ParseStatus.NOT_AN_OBJECT, why, native_id=native, name=name)
    if holds_big(fields):
        why = "a number is too large (more than 64 bits)"
        raise Refused(ParseStatus.BAD_ARGUMENTS, why, native_id=native, name=name)
    return cast("dict[str, Any]", arguments)


def _unknown(name: str, tools: Sequence[ToolSpec]) -> str:
    offered = ", ".join(tool.name for tool in tools) or "none"
    return f"there is no tool {name[:60]!r}; tools: {offered}"


def holds_big(value: Any) -> bool:
    """True where a JSON value holds a number beyond 64 bits."""
    match value:
        case dict():
            return any(map(holds_big, cast("dict[str, Any]", value).values()))
        case list():
            return any(map(holds_big, cast("list[Any]", value)))
        case _:
            return value is _BigNumber
