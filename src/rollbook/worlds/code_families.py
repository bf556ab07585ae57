"""What a family of coding tasks is, and one drawn member of it. Families of a difficulty: `code_easy`, `code_middle`,
`code_hard`.

A family is a text, a reference solution as source and a generator of inputs; ``$name`` in text and source stands for
parameters that the seed draws. What is right is what the reference returns; it is computed when the task is made.
"""

from __future__ import annotations

import copy
import random
import string
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

__all__ = ["Drawn", "Family", "draw", "k_from", "k_of", "one_of"]

EXAMPLES = 3
"""Tests that the prompt shows. They are no hidden ones."""


Params = Callable[[random.Random], dict[str, Any]]
"""Draws the parameters of a family."""


def one_of(*sets: dict[str, Any]) -> Params:
    """One of these sets of parameters."""
    return lambda rng: rng.choice(sets)


def k_of(*values: object) -> Params:
    """One of these values, called ``k``."""
    return lambda rng: {"k": rng.choice(values)}


def k_from(low: int, high: int) -> Params:
    """A whole number from `low` to `high`, both ends included, called ``k``."""
    return lambda rng: {"k": rng.randint(low, high)}


def _none(rng: random.Random) -> dict[str, Any]:
    del rng
    return {}


@dataclass(frozen=True, slots=True)
class Family:
    """Tasks that differ in their parameters."""

    text: str
    """What the function returns."""
    source: str
    """The reference; its first line is the signature."""
    inputs: Callable[[random.Random], list[list[Any]]]
    params: Params = _none

    @property
    def name(self) -> str:
        """Of the function."""
        return self.source.partition("(")[0].removeprefix("def ")


@dataclass(frozen=True, slots=True)
class Drawn:
    """One task of a family."""

    name: str
    text: str
    signature: str
    source: str
    """The reference solution."""
    examples: list[list[Any]]
    """Pairs of arguments and what is right."""
    hidden: list[list[Any]]


def draw(family: Family, rng: random.Random) -> Drawn:
    """One task, with the tests that go with it."""
    params = family.params(rng)
    source = string.Template(family.source).substitute(params)
    solve = _function(source, family.name)
    tests: list[list[Any]] = []
    for given in family.inputs(rng):
        if given not in [test[0] for test in tests]:
            tests.append([given, solve(*copy.deepcopy(given))])
    shown = rng.sample(range(len(tests) // 3, len(tests)), EXAMPLES)
    return Drawn(
        family.name,
        string.Template(family.text).substitute(params),
        source.partition("\n")[0],
        source,
        [tests[place] for place in shown],
        [test for place, test in enumerate(tests) if place not in shown],
    )


def _function(source: str, name: str) -> Callable[..., Any]:
    space: dict[str, Any] = {}
    exec(compile(source, f"<{name}>", "exec"), space)  # noqa: S102 (text of this package, nobody else's)
    return space[name]
