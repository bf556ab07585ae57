"""What stock templates do to history, as pure functions over the pieces of a prompt that only grew.

A rewrite stands for one named finding: it turns our prompt into the one that a full rendering gives, so that the two
can be compared to the last token. It reads our pieces and the family's spelling of a reasoning block, never the full
rendering.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from enum import StrEnum

from rollbook.trace.message import Role
from tests.render.simulate import Piece
from tests.render.stock import Stock


class Finding(StrEnum):
    """How a full rendering of a conversation differs from a prompt that only grows."""

    DROPS_REASONING = "drops_reasoning"
    """Reasoning of turns before the last question is left out."""
    DROPS_EMPTY_REASONING = "drops_empty_reasoning"
    """An empty reasoning block is left out once the turn is not the last message."""
    EMPTIES_REASONING = "empties_reasoning"
    """Of every turn in history, what the generation prompt opened stands empty."""
    OPENS_RESULTS_ONCE = "opens_results_once"
    """Only the first results of a conversation get the marker that opens results."""


Rewrite = Callable[[Sequence[Piece], Stock], list[Piece]]


def _with_text(piece: Piece, text: str) -> Piece:
    return dataclasses.replace(piece, text=text)


def _asks(piece: Piece) -> bool:
    """True where a batch holds a user's message that is not a tool result in disguise."""
    return any(
        message.role is Role.USER
        and not (message.content.startswith("<tool_response>") and message.content.endswith("</tool_response>"))
        for message in piece.batch
    )


def _last_question(pieces: Sequence[Piece]) -> int:
    """The place of the last batch with a question."""
    return max((place for place, piece in enumerate(pieces) if _asks(piece)), default=len(pieces))


def drops_reasoning(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """Turns before the last question lose their reasoning block."""
    last = _last_question(pieces)
    return [
        _with_text(piece, piece.text.removeprefix(piece.reasoning)) if piece.said and place < last else piece
        for place, piece in enumerate(pieces)
    ]


def drops_empty_reasoning(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """Turns without reasoning lose their block, for something always follows them in a prompt."""
    return [
        _with_text(piece, piece.text.removeprefix(piece.reasoning))
        if piece.said and not piece.said.reasoning
        else piece
        for piece in pieces
    ]


def empties_reasoning(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """What a generation prompt opened and a turn closed becomes what history shows in its place."""
    made = list(pieces)
    for place, piece in enumerate(pieces):
        if piece.said and piece.reasoning:
            before = made[place - 1]
            made[place - 1] = _with_text(before, before.text.removesuffix(family.opens) + family.kept)
            made[place] = _with_text(piece, piece.text.removeprefix(piece.reasoning))
    return made


def opens_results_once(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """Later results begin as if they stood in the first ones' list."""
    made, seen = list(pieces), False
    for place, piece in enumerate(pieces):
        if piece.batch and piece.batch[0].role is Role.TOOL:
            if seen:
                first, again = family.results
                assert piece.text.startswith(first), piece.text[:60]
                made[place] = _with_text(piece, again + piece.text.removeprefix(first))
            seen = True
    return made


REWRITES: dict[Finding, Rewrite] = {
    Finding.DROPS_REASONING: drops_reasoning,
    Finding.DROPS_EMPTY_REASONING: drops_empty_reasoning,
    Finding.EMPTIES_REASONING: empties_reasoning,
    Finding.OPENS_RESULTS_ONCE: opens_results_once,
}
