"""Tokens that a configuration adds to a converted vocabulary.

An id that the vocabulary has already must have the same text there; a text, the same id. New ones come behind the
vocabulary. What the configuration says of stripping and the like wins over what the conversion made of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rollbook.errors import ModelError
from rollbook.models.config_files import AddedEntry

__all__ = ["with_added"]


def with_added(tokenizer_json: bytes, added: Mapping[int, AddedEntry], source: str) -> bytes:
    """`tokenizer_json` with the tokens `added` (by id). Raises `ModelError` where the two do not fit."""
    if not added:
        return tokenizer_json
    parts: dict[str, Any] = msgspec.json.decode(tokenizer_json)
    entries: dict[int, dict[str, Any]] = {entry["id"]: entry for entry in parts["added_tokens"]}
    vocab: dict[str, int] | list[list[Any]] = parts["model"]["vocab"]
    ids = vocab if isinstance(vocab, dict) else {str(row[0]): place for place, row in enumerate(vocab)}
    texts = {number: text for text, number in ids.items()}
    for number, entry in sorted(added.items()):
        if texts.get(number, entry.content) != entry.content or ids.get(entry.content, number) != number:
            raise ModelError(
                f"{source}: tokenizer_config.json calls id {number} {entry.content!r}, the vocabulary has "
                f"{texts.get(number)!r} there and {entry.content!r} at {ids.get(entry.content)}"
            )
        if number not in texts:
            _append(vocab, number, entry.content, source)
        entries[number] = {"id": number, **msgspec.structs.asdict(entry)}
    return msgspec.json.encode({**parts, "added_tokens": [entries[number] for number in sorted(entries)]})


def _append(vocab: dict[str, int] | list[list[Any]], number: int, text: str, source: str) -> None:
    if isinstance(vocab, dict):
        vocab[text] = number
    elif number == len(vocab):
        vocab.append([text, 0.0])
    else:
        raise ModelError(f"{source}: {text!r} with id {number} leaves a gap behind the {len(vocab)} pieces")
