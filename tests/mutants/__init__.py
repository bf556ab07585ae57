"""The checks of the package, each as a mutant: the check is taken away and a named test must turn red.

One module a room (or a part of one), each with a list ``MUTANTS``; `tools/mutants.py` runs them.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Mutant"]


@dataclass(frozen=True, slots=True)
class Mutant:
    """One check taken away."""

    name: str
    """What the package no longer does; unique within its room."""
    file: str
    """The source file, below ``src/rollbook``."""
    snippet: str
    """Source text that stands in the file exactly once."""
    replacement: str
    """What stands there in the mutant."""
    test: str
    """The test that must turn red, as pytest names it."""
