"""Environments by name.

A name stands for a factory, or for an import string ``package.module:Class`` that is imported when the environment is
made and not before. A name that holds a colon is such an import string itself: it imports and runs the code that it
names, so it is taken from the person who starts a run, never from a file or a record.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, cast

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
        close = get_close_matches(name, names(), n=1)
        hint = f"did you mean {close[0]!r}? " if close else ""
        known = ", ".join(names()) or "none"
        raise UsageError(f"no environment {name!r}; {hint}known: {known}; or give 'package.module:Class'")
    return _imported(found) if isinstance(found, str) else found


def make(name: str, **options: Any) -> Environment:
    """One environment, for one rollout. Raises `UsageError` for an unknown name or option, or if it cannot be made."""
    found = factory(name)
    try:
        inspect.signature(found).bind(**options)
    except TypeError as error:
        raise UsageError(f"environment {name!r}: {error}; it takes {inspect.signature(found)}") from error
    with boundary(f"environment {name!r} cannot be made", UsageError):
        made = cast("object", found(**options))
    if not isinstance(made, Environment):
        raise UsageError(f"{name!r} made a {type(made).__name__}, which is no Environment")
    if not isinstance(cast("object", made.name), str):
        raise UsageError(f"environment {name!r}: its `name` is {made.name!r}; it must be text")
    return made


def _imported(target: str) -> Factory:
    module_name, _, attribute = target.partition(":")
    with boundary(f"environment {target!r}", UsageError):
        module = importlib.import_module(module_name)
        found: object = vars(module)[attribute]
    if not callable(found):
        raise UsageError(f"environment {target!r} is a {type(found).__name__}; name a class or a function")
    return cast("Factory", found)
