"""One attempted tool call: its JSON body read strictly, checked against the tools that were offered.

Order of checks, the first that fails gives the status: UTF-8 and exact JSON (no NaN or Infinity, no duplicate keys,
nesting of at most `MAX_DEPTH`): `invalid_json`; an object: `not_an_object`; a name that is a string:
`missing_name`; arguments that are there and an object: `not_an_object`; no key beside ``name`` and ``arguments``:
`bad_arguments`; a tool of that name: `unknown_tool`; numbers of at most 64 bits and arguments that fit the tool's
JSON schema: `bad_arguments`. Nothing is repaired.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any, NoReturn, cast

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

__all__ = ["CallReader", "read_json"]

MAX_DEPTH = 64
"""How deep objects and lists may nest in a call."""
MAX_ERROR = 240
"""Characters of an error text; it goes into the policy's next prompt."""
MAX_CACHED = 1024
"""Compiled schemas kept."""

_BRACKETS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"?|[\[{]|[\]}]', re.DOTALL)


class _NotJson(ValueError):
    """The body is not the JSON that we take."""


class _Refused(Exception):
    """The call does not run, and why."""

    def __init__(self, status: ParseStatus, why: str) -> None:
        super().__init__(why)
        self.status = status


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
    if text.count("{") + text.count("[") > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        raise _NotJson(f"it nests deeper than {MAX_DEPTH}")
    return _DECODER.decode(text)


def _depth(text: str) -> int:
    depth = deepest = 0
    for match in _BRACKETS.finditer(text):
        depth += {"[": 1, "{": 1, "]": -1, "}": -1}.get(match[0], 0)
        deepest = max(deepest, depth)
    return deepest


class CallReader:
    """Reads bodies of calls; keeps compiled schemas."""

    def __init__(self) -> None:
        self._compiled: dict[int, tuple[ToolSpec, Draft202012Validator]] = {}

    def read(self, body: bytes, tools: Sequence[ToolSpec], call_id: str) -> ToolCall:
        """The call that `body` attempts, with its status."""
        name: str | None = None
        arguments: dict[str, Any] | None = None
        status, error = ParseStatus.OK, None
        try:
            fields = _fields(body)
            name = _name(fields)
            arguments = _arguments(fields)
            self._check(name, arguments, fields, tools)
        except _Refused as refused:
            status, error = refused.status, str(refused)[:MAX_ERROR]
        raw = show_bytes(body)
        return ToolCall(id=call_id, name=name, arguments=arguments, raw=raw, status=status, error=error)

    def _check(self, name: str, arguments: dict[str, Any], fields: dict[str, Any], tools: Sequence[ToolSpec]) -> None:
        further = sorted(fields.keys() - {"name", "arguments"})
        if further:
            what = f'only "name" and "arguments" may be given, not {further[0][:60]!r}'
            raise _Refused(ParseStatus.BAD_ARGUMENTS, what)
        tool = next((tool for tool in tools if tool.name == name), None)
        if tool is None:
            raise _Refused(ParseStatus.UNKNOWN_TOOL, _unknown(name, tools))
        problem = self._problem(tool, arguments)
        if problem is not None:
            raise _Refused(ParseStatus.BAD_ARGUMENTS, problem)

    def _problem(self, tool: ToolSpec, arguments: Any) -> str | None:
        validator = self._validator(tool)
        try:
            found = cast("ValidationError | None", best_match(validator.iter_errors(arguments)))  # pyright: ignore
        except Unresolvable as error:
            raise ConfigError(f"tool {tool.name}: its schema refers to {error.ref!r}, which is not in it") from error
        if found is None:
            return None
        path = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in found.absolute_path)
        return f"arguments{path}: {found.message}"

    def _validator(self, tool: ToolSpec) -> Draft202012Validator:
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


def _fields(body: bytes) -> dict[str, Any]:
    try:
        value = read_json(body.decode("utf-8"))
    except ValueError as problem:
        raise _Refused(ParseStatus.INVALID_JSON, f"the tool call is not valid JSON: {problem}") from problem
    if not isinstance(value, dict):
        raise _Refused(ParseStatus.NOT_AN_OBJECT, "the tool call is JSON but not an object")
    return cast("dict[str, Any]", value)


def _name(fields: dict[str, Any]) -> str:
    name = fields.get("name")
    if not isinstance(name, str):
        raise _Refused(ParseStatus.MISSING_NAME, 'the tool call has no "name" that is a string')
    return name


def _arguments(fields: dict[str, Any]) -> dict[str, Any]:
    arguments = fields.get("arguments")
    if not isinstance(arguments, dict):
        raise _Refused(ParseStatus.NOT_AN_OBJECT, '"arguments" must be there and be a JSON object')
    if _holds_big(fields):
        raise _Refused(ParseStatus.BAD_ARGUMENTS, "a number is too large (more than 64 bits)")
    return cast("dict[str, Any]", arguments)


def _unknown(name: str, tools: Sequence[ToolSpec]) -> str:
    offered = ", ".join(tool.name for tool in tools) or "none"
    return f"there is no tool {name[:60]!r}; tools: {offered}"


def _holds_big(value: Any) -> bool:
    match value:
        case dict():
            return any(map(_holds_big, cast("dict[str, Any]", value).values()))
        case list():
            return any(map(_holds_big, cast("list[Any]", value)))
        case _:
            return value is _BigNumber
