"""Environments by name.

A name stands for a factory, or for an import string ``package.module:Class`` that is imported when the environment is
made and not before. A name that holds a colon is such an import string itself: it imports and runs the code that it
names, so it is taken from the person who starts a run, never from a file or a record.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, cast

from rollbook.envs.hooks import wrong_hooks
from rollbook.envs.protocol import Environment
from rollbook.errors import UsageError, boundary

__all__ = ["Factory", "factory", "make", "names", "register"]

Factory = Callable[..., Environment]
"""Makes one environment; a class is one. Options are keyword arguments."""

_entries: dict[str, Factory | str] = {}


def register(name: str, target: Factory | str) -> None:
    """Let `name` stand for `target`: a factory or an import string. A name stands for one thing only."""
    if not name or ":" in name:
        raise UsageError(f"an environment's name is not empty and holds no colon: {name!r}")
    if _entries.get(name, target) != target:
        raise UsageError(f"the environment name {name!r} is taken by {_entries[name]}")
    _entries[name] = target


def names() -> tuple[str, ...]:
    """All registered names, sorted."""
    return tuple(sorted(_entries))


def factory(name: str) -> Factory:
    """What makes the environment `name`. Raises `UsageError` where there is none."""
    found = name if ":" in name else _entries.get(name)
    if found is None:
        known = ", ".join(names()) or "none"
        raise UsageError(
            f"no environment {name!r}{_close(name, names())}; known: {known}; or give 'package.module:Class'"
        )
    return _imported(found) if isinstance(found, str) else found


def make(name: str, **options: Any) -> Environment:
    """One environment, for one rollout. Raises `UsageError` for an unknown name or option, or if it cannot be made."""
    found = factory(name)
    _check_options(name, found, options)
    with boundary(f"environment {name!r} cannot be made", UsageError):
        made = cast("object", found(**options))
    if not isinstance(made, Environment):
        raise UsageError(f"{name!r} made a {type(made).__name__}; {_WANTED}")
    if not isinstance(cast("object", made.name), str):
        raise UsageError(f"environment {name!r}: its `name` is {made.name!r}; it must be text")
    if wrong := wrong_hooks(type(made)):
        raise UsageError(f"environment {name!r}: {'; '.join(wrong)}")
    return made


_WANTED = "an environment is a subclass of rollbook.Environment, or a function that returns one of its instances"


def _check_options(name: str, found: Factory, options: Mapping[str, Any]) -> None:
    signature = inspect.signature(found)
    try:
        signature.bind(**options)
    except TypeError as error:
        takes = ", ".join(str(each).replace("'", "") for each in signature.parameters.values()) or "no options"
        unknown = sorted(set(options) - set(signature.parameters))
        problem = f"no option {unknown[0]!r}{_close(unknown[0], signature.parameters)}" if unknown else str(error)
        raise UsageError(f"environment {name!r}: {problem}; it takes {takes}") from error


def _close(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, known, n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _imported(target: str) -> Factory:
    module_name, _, attribute = target.partition(":")
    with boundary(f"environment {target!r}", UsageError):
        module = _module(target, module_name)
    members: dict[str, object] = vars(module)
    if attribute not in members:
        there = [name for name, each in members.items() if _is_environment(each)]
        has = f"its environments: {', '.join(there)}" if there else "it has no environment at all"
        where = members.get("__file__") or "built in"
        no = f"has no {attribute!r}{_close(attribute, members)}"
        raise UsageError(f"environment {target!r}: module {module_name} ({where}) {no}; {has}")
    found = members[attribute]
    if not callable(found) or (isinstance(found, type) and not issubclass(found, Environment)):
        what = "class that is none" if isinstance(found, type) else type(found).__name__
        raise UsageError(f"environment {target!r} is a {what}; {_WANTED}")
    return cast("Factory", found)


def _is_environment(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, Environment) and found is not Environment


def _module(target: str, name: str) -> ModuleType:
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if name != missing and not name.startswith(f"{missing}."):
            raise  # it is there, and imports what is not
        file = f"{missing.replace('.', '/')}.py"
        raise UsageError(
            f"environment {target!r}: there is no module {missing!r}: no {file} in {sys.path[0] or Path.cwd()}, and no "
            "installed package has it; go to the folder that holds it, or set PYTHONPATH"
        ) from error
