"""A ``tokenizer.json`` (the ``tokenizers`` library) made of its parts.

Nothing is added that the model's own files do not say: no post-processor, no truncation, no padding. Control tokens
stand in the vocabulary too, so that the library leaves them the ids that they have.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from rollbook.errors import ModelError

__all__ = [
    "added_token",
    "byte_level",
    "bytes_of",
    "merges_of",
    "replace_blanks",
    "sequence",
    "spelled",
    "split",
    "write",
]

MAX_MERGED = 1 << 27
"""Characters of all merges; the largest vocabularies have some 2^23."""

_Part = dict[str, Any]
_SHOWN = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_HIDDEN = [byte for byte in range(256) if byte not in _SHOWN]
_SPELLINGS = {byte: chr(byte) for byte in _SHOWN} | {byte: chr(256 + place) for place, byte in enumerate(_HIDDEN)}
_BYTES = {spelling: byte for byte, spelling in _SPELLINGS.items()}


def spelled(token: bytes) -> str:
    """A token as a byte-level vocabulary spells it (GPT-2's table)."""
    return token.decode("latin-1").translate(_SPELLINGS)


def bytes_of(spelled: str) -> bytes:
    """The token that a byte-level vocabulary spells so. Raises `KeyError` with a character that stands for no byte."""
    return bytes(map(_BYTES.__getitem__, spelled))


def byte_level(*, use_regex: bool) -> _Part:
    """The byte-level pre-tokenizer or decoder."""
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def split(pattern: str) -> _Part:
    """A pre-tokenizer that cuts text into what `pattern` finds."""
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def sequence(*parts: _Part) -> _Part:
    """Pre-tokenizers one after another."""
    return {"type": "Sequence", "pretokenizers": list(parts)}


def replace_blanks(sign: str, *, prefix: bool) -> _Part:
    """The normalizer that writes `sign` for each blank and, with `prefix`, one before the text."""
    replace: _Part = {"type": "Replace", "pattern": {"String": " "}, "content": sign}
    return {"type": "Sequence", "normalizers": [*([{"type": "Prepend", "prepend": sign}] if prefix else []), replace]}


def merges_of(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """`pairs` as a list. Raises `ModelError` where a vocabulary of long tokens, each the start of the next, would give
    more than `MAX_MERGED` characters."""
    found: list[tuple[str, str]] = []
    size = 0
    for pair in pairs:
        size += len(pair[0]) + len(pair[1])
        if size > MAX_MERGED:
            raise ModelError("the tokenizer's vocabulary has too many ways to merge its tokens; it is no model's")
        found.append(pair)
    return found


def added_token(number: int, content: str, *, special: bool) -> _Part:
    """A token that is found in the text as it stands, before anything is merged."""
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


def write(
    model: Mapping[str, Any],
    added: Sequence[_Part],
    *,
    normalizer: _Part | None,
    pre_tokenizer: _Part | None,
    decoder: _Part,
) -> bytes:
    """The bytes of a ``tokenizer.json``; `model` gets the library's names for what it does not say."""
    plain: _Part = {"dropout": None, "unk_token": None, "fuse_unk": False, "byte_fallback": False}
    plain |= {"continuing_subword_prefix": None, "end_of_word_suffix": None}
    whole = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": sorted(added, key=_number),
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": None,
        "decoder": decoder,
        "model": {**(plain if model["type"] == "BPE" else {}), **model},
    }
    return msgspec.json.encode(whole)


def _number(entry: _Part) -> int:
    return entry["id"]
