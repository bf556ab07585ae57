"""Mistral's ``tekken.json`` as ``tokenizer.json``.

Control tokens come first; the id of any other token is its rank plus their number. The vocabulary ends where the
configuration says, whatever the file holds behind that. A file that names no control tokens means those of the first
format; places without a name are called ``<SPECIAL_17>``. Format: mistral-common.
"""

from __future__ import annotations

import binascii
from itertools import count

import msgspec

from rollbook.errors import ModelError
from rollbook.models.tiktoken_file import MAX_TOKEN, MAX_TOKENS, tiktoken_json

__all__ = ["TEKKEN_ROLES", "tekken_json"]

TEKKEN_ROLES = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
"""Special tokens of the format, by the names that templates use."""

_FIRST = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


class _Token(msgspec.Struct):
    rank: int
    token_bytes: str


class _Special(msgspec.Struct):
    rank: int
    token_str: str


class _Config(msgspec.Struct):
    pattern: str
    default_vocab_size: int
    default_num_special_tokens: int


class _File(msgspec.Struct):
    config: _Config
    vocab: list[_Token]
    special_tokens: list[_Special] | None = None


def tekken_json(data: bytes, source: str) -> bytes:
    """The bytes of a ``tokenizer.json``. `source` names the file in errors. Raises `ModelError`."""
    try:
        file = msgspec.json.decode(data, type=_File)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{source} is no tekken file: {error}") from error
    first, size = file.config.default_num_special_tokens, file.config.default_vocab_size
    if not 0 < first < size <= MAX_TOKENS:
        raise ModelError(f"{source}: a vocabulary of {size} tokens, {first} of them control tokens, cannot be")
    return tiktoken_json(_ranks(file, size - first, source), file.config.pattern, _control(file, source), offset=first)


def _ranks(file: _File, size: int, source: str) -> dict[bytes, int]:
    ranks: dict[bytes, int] = {}
    for place, entry in zip(range(size), file.vocab, strict=False):
        try:
            token = binascii.a2b_base64(entry.token_bytes, strict_mode=True)
        except ValueError as error:
            raise ModelError(f"{source}: the bytes of token {place} are not base64") from error
        if entry.rank != place or not 0 < len(token) <= MAX_TOKEN:
            raise ModelError(f"{source}: token {place} has rank {entry.rank} and {len(token)} bytes")
        ranks[token] = place
    if len(ranks) < size:
        raise ModelError(f"{source} holds {len(ranks)} different tokens, {size} were announced")
    return ranks


def _control(file: _File, source: str) -> dict[str, int]:
    number = file.config.default_num_special_tokens
    given = {entry.rank: entry.token_str for entry in file.special_tokens or ()}
    names = given if file.special_tokens is not None else dict(zip(count(), _FIRST))
    found = {names.get(place, f"<SPECIAL_{place}>"): place for place in range(number)}
    if len(found) < number or not names.keys() <= set(range(number)):
        raise ModelError(f"{source}: its control tokens do not have ids of their own below {number}")
    return found
