"""A SentencePiece model file (``tokenizer.model``), read without the library.

The file is one protobuf message: pieces (1), trainer settings (2), normalizer settings (3). Every length is checked
against what is left. A model whose normalizer rewrites text (a character map, collapsed blanks) is refused: its ids
would not spell the text that was given. Format: ``sentencepiece_model.proto`` of SentencePiece.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from rollbook.errors import ModelError
from rollbook.models.pieces import SPECIAL, Pieces, PieceType, pieces_json

__all__ = ["sentencepiece_json", "sentencepiece_roles"]

MAX_PIECES = 1 << 21
"""Pieces of a vocabulary."""

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_UNIGRAM, _BPE = 1, 2

# field of the trainer's settings, and the id where it says nothing; -1 (none) comes as a huge number
_ROLES = {"unk_token": (40, 0), "bos_token": (41, 1), "eos_token": (42, 2), "pad_token": (43, (1 << 64) - 1)}

_Field = tuple[int, int | bytes]


class _Damaged(Exception):
    """The bytes are no message of this kind."""


class _Model(NamedTuple):
    pieces: Pieces
    roles: dict[str, str]


def sentencepiece_json(data: bytes, source: str) -> bytes:
    """The bytes of a ``tokenizer.json``. `source` names the file in errors. Raises `ModelError`."""
    return pieces_json(_parsed(data, source).pieces, source)


def sentencepiece_roles(data: bytes) -> dict[str, str]:
    """The special tokens that the model itself names (``bos_token`` ...). Raises `ModelError`."""
    return _parsed(data, "the model").roles


def _parsed(data: bytes, source: str) -> _Model:
    try:
        return _read(data, source)
    except (_Damaged, UnicodeDecodeError) as error:
        raise ModelError(f"{source} is no SentencePiece model, or is cut short: fetch or copy it again") from error


def _read(data: bytes, source: str) -> _Model:
    rows: list[tuple[str, float, int]] = []
    trainer: dict[int, int | bytes] = {}
    normalizer: dict[int, int | bytes] = {}
    for number, value in _fields(data):
        if number == 1:
            rows.append(_piece(_bytes(value)))
        elif number == 2:
            trainer |= dict(_fields(_bytes(value)))
        elif number == 3:
            normalizer |= dict(_fields(_bytes(value)))
        if len(rows) > MAX_PIECES:
            raise _Damaged
    _check(trainer, normalizer, source)
    pieces = Pieces(
        texts=[text for text, _, _ in rows],
        scores=[score for _, score, _ in rows],
        types=[kind for _, _, kind in rows],
        unigram=trainer.get(3, _UNIGRAM) == _UNIGRAM,
        dummy_blank=bool(normalizer.get(3, 1)),
    )
    places = {role: trainer.get(field, default) for role, (field, default) in _ROLES.items()}
    roles = {role: place for role, place in places.items() if isinstance(place, int) and place < len(rows)}
    return _Model(pieces, {role: rows[place][0] for role, place in roles.items() if rows[place][2] in SPECIAL})


def _check(trainer: dict[int, int | bytes], normalizer: dict[int, int | bytes], source: str) -> None:
    remedy = "give the model's tokenizer.json"
    if trainer.get(3, _UNIGRAM) not in (_UNIGRAM, _BPE):
        raise ModelError(f"{source} is neither a BPE nor a Unigram model: {remedy}")
    if trainer.get(24, 0) or not normalizer.get(5, 1):
        raise ModelError(f"{source} spells blanks in a way of its own: {remedy}")
    if normalizer.get(2) or normalizer.get(4, 1):
        raise ModelError(f"{source} rewrites text (it maps characters or drops blanks): {remedy}")


def _piece(data: bytes) -> tuple[str, float, int]:
    found = dict(_fields(data))
    score, kind = found.get(2, b"\0\0\0\0"), found.get(3, PieceType.NORMAL)
    if not isinstance(score, bytes) or len(score) != 4 or not isinstance(kind, int):
        raise _Damaged
    return _bytes(found.get(1, b"")).decode(), struct.unpack("<f", score)[0], kind


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _Damaged
    return value


def _fields(data: bytes) -> Iterator[_Field]:
    """(number, value) of each field of a message; fixed-width numbers stay bytes."""
    at = 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(data, at)
            yield key >> 3, value
            continue
        size, at = _varint(data, at) if kind == _BYTES else ({_FIXED64: 8, _FIXED32: 4}.get(kind, len(data)), at)
        if at + size > len(data):
            raise _Damaged
        yield key >> 3, data[at : at + size]
        at += size


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place, byte in enumerate(data[at : at + 10]):
        value |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return value, at + place + 1
    raise _Damaged
