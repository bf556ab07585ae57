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
    MOVES_TOOLS = "moves_tools"
    """The tools stand before the last question only."""
    MOVES_SYSTEM = "moves_system"
    """The system message stands in the last question, and nowhere where the last message is none."""
    OPENS_RESULTS_ONCE = "opens_results_once"
    """Only the first results of a conversation get the marker that opens results."""


LABELS = {
    Finding.DROPS_REASONING: "reasoning=dropped",
    Finding.DROPS_EMPTY_REASONING: "reasoning=dropped",
    Finding.EMPTIES_REASONING: "reasoning=dropped",
    Finding.MOVES_TOOLS: "tools=move",
    Finding.MOVES_SYSTEM: "system=moves",
    Finding.OPENS_RESULTS_ONCE: "bridge=as in the first round",
}
"""What the renderer's own findings say of each."""

Rewrite = Callable[[Sequence[Piece], Stock], list[Piece]]


def _with_text(piece: Piece, text: str) -> Piece:
    return dataclasses.replace(piece, text=text)


def _asks(piece: Piece, family: Stock) -> bool:
    """True where a batch holds a question: a user's message, unless the family takes it for a tool result."""
    users = [message.content for message in piece.batch if message.role is Role.USER]
    disguised = [text.startswith("<tool_response>") and text.endswith("</tool_response>") for text in users]
    return bool(users) and not (family.disguised_results and all(disguised))


def _last_question(pieces: Sequence[Piece], family: Stock) -> int:
    """The place of the last batch with a question."""
    return max((place for place, piece in enumerate(pieces) if _asks(piece, family)), default=len(pieces))


def drops_reasoning(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """Turns before the last question lose their reasoning, or what stands in its place remains."""
    last = _last_question(pieces, family)
    return [
        _with_text(piece, family.kept + piece.text.removeprefix(piece.reasoning))
        if piece.said and piece.reasoning and place < last
        else piece
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


_TOOLS, _TOOLS_END, _ASKED = "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[INST]"


def moves_tools(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """Every question came with the tools; only the last keeps them, and what says the same as the last."""
    last = pieces[_last_question(pieces, family)].batch[-1]
    return [
        _without_tools(piece, family) if _asks(piece, family) and last not in piece.batch else piece for piece in pieces
    ]


def _without_tools(piece: Piece, family: Stock) -> Piece:
    start = family.special_tokens["bos_token"] if piece.text.startswith(family.special_tokens["bos_token"]) else ""
    rest = piece.text.removeprefix(start)
    return _with_text(piece, start + rest.partition(_TOOLS_END)[2]) if rest.startswith(_TOOLS) else piece


def moves_system(pieces: Sequence[Piece], family: Stock) -> list[Piece]:
    """The first question loses the system message, a question at the end gets it."""
    made = list(pieces)
    if made[0].batch[0].role is Role.SYSTEM:
        said = f"{_ASKED}{family.without_blanks(made[0].batch[0].content)}\n\n"
        made[0] = _with_text(made[0], made[0].text.replace(said, _ASKED, 1))
        if _asks(made[-1], family):
            made[-1] = _with_text(made[-1], made[-1].text.replace(_ASKED, said, 1))
    return made


REWRITES: dict[Finding, Rewrite] = {
    Finding.DROPS_REASONING: drops_reasoning,
    Finding.DROPS_EMPTY_REASONING: drops_empty_reasoning,
    Finding.EMPTIES_REASONING: empties_reasoning,
    Finding.MOVES_TOOLS: moves_tools,
    Finding.MOVES_SYSTEM: moves_system,
    Finding.OPENS_RESULTS_ONCE: opens_results_once,
}
