"""Inputs for functions: the edge cases of each kind of argument first, then seeded ones.

Each generator gives lists of arguments. All values are plain JSON: whole numbers, text, lists, dicts with text keys.
"""

from __future__ import annotations

import random
from typing import Any

__all__ = ["counts", "dicts", "grids", "intervals", "lists", "number_pairs", "numbers", "sizes", "texts", "word_lists"]

Inputs = list[list[Any]]
WORDS = ("ant", "bee", "cat", "dog", "eel", "fox", "gnu", "hen", "ibis", "jay", "kite", "lynx", "mole", "newt", "owl")
RANDOM = 8
"""How many inputs are drawn besides the edge cases."""


def _list(rng: random.Random, low: int = -20, high: int = 20) -> list[int]:
    return [rng.randint(low, high) for _ in range(rng.randint(2, 9))]


def _text(rng: random.Random) -> str:
    words = [rng.choice(WORDS) for _ in range(rng.randint(1, 5))]
    return " ".join(rng.choice((str.lower, str.upper, str.title))(word) for word in words)


def lists(rng: random.Random) -> Inputs:
    """One list of whole numbers."""
    edges: list[list[int]] = [[], [0], [7], [-4], [5, 5, 5], [-3, -1, -2], [1, 2, 3, 4], [4, 3, 2, 1], [2, 2, -2, -2]]
    return [[each] for each in [*edges, *(_list(rng) for _ in range(RANDOM))]]


def counts(rng: random.Random) -> Inputs:
    """One list of small numbers that come again."""
    edges: list[list[int]] = [[], [1], [1, 1], [2, 1, 2, 1], [3, 3, 3, 1, 1, 2]]
    return [
        [each] for each in [*edges, *([rng.randint(0, 4) for _ in range(rng.randint(3, 12))] for _ in range(RANDOM))]
    ]


def sizes(rng: random.Random) -> Inputs:
    """A list and a number that may be larger than the list, but is at least 1."""
    edges: Inputs = [[[], 1], [[1], 1], [[1], 3], [[1, 2, 3, 4], 2], [[1, 2, 3, 4, 5], 2], [[5, -5, 5], 3]]
    return [*edges, *([_list(rng), rng.randint(1, 5)] for _ in range(RANDOM))]


def numbers(rng: random.Random) -> Inputs:
    """One whole number, not negative."""
    edges = [0, 1, 2, 3, 10, 11, 100, 255, 1000]
    return [[each] for each in [*edges, *(rng.randint(2, 5000) for _ in range(RANDOM))]]


def number_pairs(rng: random.Random) -> Inputs:
    """Two whole numbers of at least 1."""
    edges: Inputs = [[1, 1], [1, 9], [9, 1], [12, 18], [17, 5], [8, 8], [100, 75]]
    return [*edges, *([rng.randint(1, 200), rng.randint(1, 200)] for _ in range(RANDOM))]


def texts(rng: random.Random) -> Inputs:
    """One text."""
    edges = ["", " ", "a", "Z", "aa", "Level", "no on", "a1b22", "  two  spaces ", "Hello, World!"]
    return [[each] for each in [*edges, *(_text(rng) for _ in range(RANDOM))]]


def word_lists(rng: random.Random) -> Inputs:
    """One list of words."""
    edges: list[list[str]] = [[], ["a"], ["b", "a"], ["a", "A"], ["same", "same"], ["", "x"], ["aa", "b", "aa", "c"]]
    drawn = ([rng.choice(WORDS) for _ in range(rng.randint(2, 8))] for _ in range(RANDOM))
    return [[each] for each in [*edges, *drawn]]


def dicts(rng: random.Random) -> Inputs:
    """One dict from words to whole numbers."""
    edges: list[dict[str, int]] = [{}, {"a": 0}, {"b": 2, "a": 1}, {"x": 1, "y": 1}, {"n": -5, "m": 5, "o": 0}]
    drawn = ({rng.choice(WORDS): rng.randint(-9, 30) for _ in range(rng.randint(2, 7))} for _ in range(RANDOM))
    return [[each] for each in [*edges, *drawn]]


def grids(rng: random.Random) -> Inputs:
    """One list of rows of equal length, of whole numbers."""
    edges: list[list[list[int]]] = [[], [[1]], [[1, 2, 3]], [[1], [2], [3]], [[1, 2], [3, 4]], [[0, 0], [0, 0]]]
    drawn: list[list[list[int]]] = []
    for _ in range(RANDOM):
        width = rng.randint(1, 4)
        drawn.append([[rng.randint(0, 9) for _ in range(width)] for _ in range(rng.randint(1, 4))])
    return [[each] for each in [*edges, *drawn]]


def intervals(rng: random.Random) -> Inputs:
    """One list of pairs, each with its smaller number first."""
    edges: list[list[list[int]]] = [
        [],
        [[1, 2]],
        [[1, 2], [2, 3]],
        [[1, 9], [2, 3]],
        [[5, 6], [1, 2]],
        [[0, 0], [0, 0]],
    ]
    drawn: list[list[list[int]]] = []
    for _ in range(RANDOM):
        starts = [rng.randint(0, 25) for _ in range(rng.randint(2, 6))]
        drawn.append([[start, start + rng.randint(0, 6)] for start in starts])
    return [[each] for each in [*edges, *drawn]]
