"""From a typed async function to what the model sees of it: a description and a JSON schema of its arguments.

What cannot be offered honestly is refused at once (`UsageError`): a function that is not async, a parameter without a
type, ``*args`` and ``**kwargs``, positional-only parameters, types without a JSON form. The description is the
docstring's first paragraph. Descriptions of parameters come from an ``Args:`` section, or from lines ``name: text``
behind the first paragraph.
"""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable
from typing import Annotated, Any

import msgspec

from rollbook.errors import UsageError

__all__ = ["arguments_of", "describe", "parameters_schema", "takes_self"]

_ENTRY = re.compile(r"(\w+)(?:\s*\([^)]*\))?:\s+(\S.*)")
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):")
_ARGUMENTS = ("Args", "Arguments", "Parameters")
_REFUSED = (
    inspect.Parameter.VAR_POSITIONAL,
    inspect.Parameter.VAR_KEYWORD,
    inspect.Parameter.POSITIONAL_ONLY,
)


def takes_self(function: Callable[..., Any]) -> bool:
    """True for a method: its first parameter is called ``self``."""
    return next(iter(inspect.signature(function).parameters), None) == "self"


def arguments_of(function: Callable[..., Any], name: str) -> type[msgspec.Struct]:
    """A struct with one field a parameter; values are converted into it strictly. Raises `UsageError`."""
    where = f"tool {name!r} ({_place(function)})"
    if not inspect.iscoroutinefunction(function):
        raise UsageError(f"{where} must be an async function: write 'async def {name}(...)'")
    types = _types(function, name)
    texts = _parameter_texts(function)
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in _parameters(function):
        if parameter.kind in _REFUSED:
            raise UsageError(f"{where}: the parameter {parameter} has no name that the model could use")
        if parameter.name not in types:
            raise UsageError(f"{where}: the parameter {parameter.name!r} has no type; write '{parameter.name}: str'")
        kind: Any = types[parameter.name]
        if parameter.name in texts:
            kind = Annotated[kind, msgspec.Meta(description=texts[parameter.name])]
        has_default = parameter.default is not inspect.Parameter.empty
        fields.append((parameter.name, kind, parameter.default) if has_default else (parameter.name, kind))
    try:
        return msgspec.defstruct(name, fields, forbid_unknown_fields=True, kw_only=True, frozen=True)
    except TypeError as error:
        raise UsageError(f"{where}: {error}") from error


def _place(function: Callable[..., Any]) -> str:
    """Its class and name, and where it is written."""
    code = inspect.unwrap(function).__code__
    return f"{function.__qualname__}, {code.co_filename}:{code.co_firstlineno}"


def parameters_schema(arguments: type[msgspec.Struct], name: str) -> dict[str, Any]:
    """The JSON schema (draft 2020-12) of `arguments`, always an object. Raises `UsageError`."""
    try:
        (root,), parts = msgspec.json.schema_components([arguments], ref_template="#/$defs/{name}")
    except TypeError as error:
        raise UsageError(f"tool {name!r}: a parameter's type has no JSON form: {error}") from error
    schema = parts.pop(str(root["$ref"]).rpartition("/")[2])
    schema.pop("title", None)
    return {**schema, "$defs": parts} if parts else schema


def describe(function: Callable[..., Any]) -> str:
    """The docstring's first paragraph on one line; empty without a docstring."""
    return " ".join(_paragraphs(function)[0].split())


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = list(inspect.signature(function).parameters.values())
    return parameters[1:] if takes_self(function) else parameters


def _types(function: Callable[..., Any], name: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(function, include_extras=True)
    except NameError as error:
        raise UsageError(
            f"tool {name!r} ({_place(function)}): {error}; types of parameters must be importable from its module"
        ) from error


def _paragraphs(function: Callable[..., Any]) -> tuple[str, str]:
    first, _, rest = inspect.cleandoc(function.__doc__ or "").partition("\n\n")
    return first, rest


def _parameter_texts(function: Callable[..., Any]) -> dict[str, str]:
    texts: dict[str, str] = {}
    known = {parameter.name for parameter in _parameters(function)}
    current: str | None = None
    reading = True
    for line in _paragraphs(function)[1].splitlines():
        section, entry = _SECTION.fullmatch(line.strip()), _ENTRY.fullmatch(line.strip())
        if section:
            reading = section[1] in _ARGUMENTS
        if section or not reading or not line.strip():
            current = None
        elif entry and entry[1] in known:
            current = str(entry[1])
            texts[current] = str(entry[2])
        elif current is not None:
            texts[current] += f" {line.strip()}"
    return texts
