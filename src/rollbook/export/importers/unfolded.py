"""How large plain data is when nothing in it is shared.

A pickle may say in a few bytes that a list holds another one twice, and that one a third twice: whoever walks such data
walks it for ever. The size here is counted without that walk, each container once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import numpy as np

from rollbook.export.importers.rows import BadRow

__all__ = ["unfolded"]

_LETTERS = 8
"""Letters and bytes that count as one value."""
_DEEPEST = 1000
"""Containers within each other: what is deeper no JSON reader takes either."""


def unfolded(plain: Any) -> int:
    """The number of values in plain data, each counted as often as a walk meets it; long texts count as several. Raises
    `BadRow` for data that hold themselves or are nested too deeply."""
    sizes: dict[int, int] = {}
    entered: set[int] = set()
    stack, depth = [plain], 0
    while stack:
        value = stack[-1]
        key = id(value)
        if not _holds(value) or key in sizes:
            stack.pop()
        elif key in entered:
            sizes[key] = 1 + sum(_size(each, sizes) for each in _inner(value))
            stack.pop()
            depth -= 1
        else:
            entered.add(key)
            depth += 1
            if depth > _DEEPEST:
                raise BadRow(f"its data are nested more than {_DEEPEST} deep")
            deeper = [each for each in _inner(value) if _holds(each) and id(each) not in sizes]
            if any(id(each) in entered for each in deeper):
                raise BadRow("its data hold themselves")
            stack += deeper
    return _size(plain, sizes)


def _holds(value: Any) -> bool:
    return isinstance(value, list | tuple | dict)


def _inner(value: Any) -> Iterable[Any]:
    """What a container holds; the keys of a mapping too, for they may be long."""
    if isinstance(value, dict):
        return [each for pair in cast("dict[Any, Any]", value).items() for each in pair]
    return cast("Iterable[Any]", value)


def _size(value: Any, sizes: dict[int, int]) -> int:
    if isinstance(value, str | bytes):
        return 1 + len(value) // _LETTERS
    if isinstance(value, np.ndarray):
        return 1 + value.size
    return sizes.get(id(value), 1)
