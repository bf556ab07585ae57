"""One behaviour of a renderer, what is checked with it, and the error that says what was seen."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np

from rollbook.errors import RollbookError
from rollbook.render.protocol import Renderer
from rollbook.render.text_side import TextSide

__all__ = ["Behaviour", "NotConforming", "Subject", "behaviour", "hold"]


class NotConforming(RollbookError, AssertionError):
    """A renderer does not do what every renderer must; the text says what was seen."""


@dataclass(frozen=True, slots=True)
class Subject:
    """A renderer under examination."""

    renderer: Renderer
    control: Mapping[str, int]
    """Spelling and id of control tokens, the stop tokens among them."""

    @property
    def control_ids(self) -> frozenset[int]:
        """Ids that content never makes."""
        return self.renderer.info.stop_ids.union(self.control.values())


@dataclass(frozen=True, slots=True)
class Behaviour:
    """One thing that every renderer does."""

    name: str
    rule: str
    """What must hold, and where it matters what follows if it does not."""
    see: Callable[[Subject], bool]
    """Raises `NotConforming`; False where the renderer refuses every conversation that would show it."""

    def check(self, renderer: Renderer, control: Mapping[str, int] | None = None) -> bool:
        """Raises `NotConforming`. False where the renderer refuses every conversation that would show it.

        `control`: spelling and id of the tokenizer's control tokens, of all its added tokens at best; None: a
        `TextSide` says them itself, of any other renderer they are the stop tokens, as it decodes them.
        """
        return self.see(Subject(renderer, _control_of(renderer) if control is None else control))

    def __str__(self) -> str:
        return self.name


def _control_of(renderer: Renderer) -> dict[str, int]:
    if isinstance(renderer, TextSide):
        return renderer.control_tokens
    return {renderer.decode(np.array([stop], np.int32)): stop for stop in renderer.info.stop_ids}


def behaviour(see: Callable[[Subject], bool]) -> Behaviour:
    """A function as a behaviour: its name, and its docstring as the rule."""
    return Behaviour(see.__name__, " ".join((see.__doc__ or "").split()), see)


def hold(truth: bool, seen: str) -> None:
    """Raise `NotConforming` with what was seen where `truth` is not so."""
    if not truth:
        raise NotConforming(seen)
