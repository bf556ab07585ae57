"""A SentencePiece vocabulary (pieces, scores, types) as ``tokenizer.json``.

BPE: of two neighbours those are merged first whose joint has the highest score, so the merges are every way to cut a
piece into two, in the order of scores; of equal scores the longer piece comes first, which gives the same as
SentencePiece's rule (leftmost first) for the runs of blanks and line ends that share one. Unigram: the scores
themselves. Control and unknown pieces become special added tokens; pieces that a user defined become added tokens
that are not special, but for runs of ``▁``, which are made by merging as everywhere else.

The dummy blank is a normalizer that puts one before the text and behind every control token, as the ``tokenizers``
library (legacy form) and llama.cpp do: all segments between control tokens are then what SentencePiece makes of each.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from math import isfinite
from typing import Any

import msgspec

from rollbook.errors import ModelError
from rollbook.models.document import added_token, merges_of, replace_blanks, write

__all__ = ["SPECIAL", "PieceType", "Pieces", "pieces_json"]

BLANK = "\u2581"
MAX_PIECE = 1 << 12
"""Characters of one piece."""


class PieceType(IntEnum):
    """What a piece is; GGUF files use the same numbers."""

    NORMAL = 1
    """Text."""
    UNKNOWN = 2
    """Stands for what the vocabulary cannot spell."""
    CONTROL = 3
    """Never text."""
    USER_DEFINED = 4
    """Text that is one token wherever it stands."""
    UNUSED = 5
    """A place that nothing uses."""
    BYTE = 6
    """One byte of a character that has no piece."""


SPECIAL = (PieceType.UNKNOWN, PieceType.CONTROL)
"""What becomes a special added token."""


class Pieces(msgspec.Struct, frozen=True, kw_only=True):
    """A vocabulary; the id of a piece is its place."""

    texts: list[str]
    scores: list[float]
    types: list[int]
    unigram: bool
    """False: BPE."""
    dummy_blank: bool
    """True where a blank is put before text."""


def pieces_json(pieces: Pieces, source: str) -> bytes:
    """The bytes of a ``tokenizer.json``. `source` names the file in errors. Raises `ModelError`."""
    _check(pieces, source)
    made = {"byte_fallback": PieceType.BYTE in pieces.types}
    return write(
        {**(_unigram(pieces, source) if pieces.unigram else _bpe(pieces)), **made},
        _added(pieces),
        normalizer=replace_blanks(BLANK, prefix=pieces.dummy_blank),
        pre_tokenizer=None,
        decoder=_decoder(pieces.dummy_blank),
    )


def _check(pieces: Pieces, source: str) -> None:
    size = len(pieces.texts)
    if not size or {len(pieces.scores), len(pieces.types)} != {size}:
        raise ModelError(f"{source}: scores and types do not cover the {size} pieces")
    if len(set(pieces.texts)) != size:
        raise ModelError(f"{source}: the vocabulary holds the same piece twice")
    if not set(pieces.types) <= set(PieceType):
        raise ModelError(f"{source}: the vocabulary holds a piece of an unknown type")
    if not all(0 < len(text) <= MAX_PIECE for text in pieces.texts) or not all(map(isfinite, pieces.scores)):
        raise ModelError(f"{source}: the vocabulary holds an empty or overlong piece, or a score that is no number")


def _added(pieces: Pieces) -> list[dict[str, Any]]:
    return [
        added_token(number, text, special=kind in SPECIAL)
        for number, (text, kind) in enumerate(zip(pieces.texts, pieces.types, strict=True))
        if kind in SPECIAL or (kind == PieceType.USER_DEFINED and text.strip(BLANK))
    ]


def _bpe(pieces: Pieces) -> Mapping[str, Any]:
    rows = list(zip(pieces.texts, pieces.scores, pieces.types, strict=True))
    usable = {text: score for text, score, kind in rows if kind in (PieceType.NORMAL, PieceType.USER_DEFINED)}
    merges = merges_of(
        (text[:at], text[at:])
        for text in sorted(usable, key=lambda text: (-usable[text], -len(text)))
        for at in range(1, len(text))
        if text[:at] in usable and text[at:] in usable
    )
    unknown = next((text for text, _, kind in rows if kind == PieceType.UNKNOWN), None)
    vocab = {text: number for number, text in enumerate(pieces.texts)}
    return {"type": "BPE", "vocab": vocab, "merges": merges, "unk_token": unknown, "fuse_unk": True}


def _unigram(pieces: Pieces, source: str) -> Mapping[str, Any]:
    if PieceType.UNKNOWN not in pieces.types:
        raise ModelError(f"{source}: a Unigram vocabulary needs an unknown piece")
    # a text never holds a blank here, so a piece with one is never found
    vocab = [
        (f" {text}" if kind == PieceType.UNUSED else text, score)
        for text, score, kind in zip(pieces.texts, pieces.scores, pieces.types, strict=True)
    ]
    return {"type": "Unigram", "vocab": vocab, "unk_id": pieces.types.index(PieceType.UNKNOWN)}


def _decoder(dummy_blank: bool) -> dict[str, Any]:
    parts: list[dict[str, Any]] = [
        {"type": "Replace", "pattern": {"String": BLANK}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
    ]
    strip = [{"type": "Strip", "content": " ", "start": 1, "stop": 0}] if dummy_blank else []
    return {"type": "Sequence", "decoders": [*parts, *strip]}
