"""The vocabulary file that the `openai-harmony` library wants, made from a gpt-oss model's own ``tokenizer.json``.

The library knows one tokenizer and fetches its ranks over the network, unless the environment variable
`ENCODINGS_VARIABLE` names a folder that holds them. The same ranks stand in the model's ``tokenizer.json``, so
nothing needs to be fetched. The library checks the file's sum, and so does this module, before anything is written:
a tokenizer with other ranks is no tokenizer of gpt-oss, and is refused.
"""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import msgspec

from rollbook.errors import ModelError
from rollbook.models.document import bytes_of
from rollbook.models.files import put_in_cache

__all__ = ["ENCODINGS_VARIABLE", "RANKS_SUM", "is_harmony", "ranks_file", "write_ranks"]

ENCODINGS_VARIABLE = "TIKTOKEN_ENCODINGS_BASE"
"""The environment variable in which the library looks for the folder."""
RANKS_SUM = "446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d"
"""sha256 of the ranks, as openai-harmony 0.0.8 asks for it."""

_NAME = "o200k_base.tiktoken"
_MARKERS = frozenset({"<|channel|>", "<|message|>", "<|call|>"})


class _Added(msgspec.Struct):
    id: int
    content: str


class _Model(msgspec.Struct):
    vocab: dict[str, int]


class _AddedOnly(msgspec.Struct):
    added_tokens: list[_Added] = []


class _Whole(_AddedOnly, kw_only=True):
    model: _Model


def is_harmony(tokenizer_json: bytes) -> bool:
    """True where the tokenizer has the markers of the harmony format as added tokens."""
    if not all(marker.encode() in tokenizer_json for marker in _MARKERS):
        return False
    try:
        found = msgspec.json.decode(tokenizer_json, type=_AddedOnly)
    except msgspec.DecodeError:
        return False  # no tokenizer file at all: the renderer of any other model says what is wrong with it
    return {token.content for token in found.added_tokens} >= _MARKERS


def ranks_file(tokenizer_json: bytes) -> bytes:
    """The ranks in tiktoken's form: a token's bytes in base64, a blank, its id; by id. Raises `ModelError`."""
    try:
        found = msgspec.json.decode(tokenizer_json, type=_Whole)
    except msgspec.DecodeError as error:
        raise ModelError(f"the tokenizer has no byte-level vocabulary: {error}") from error
    added = {token.id for token in found.added_tokens}
    ranks = sorted((number, text) for text, number in found.model.vocab.items() if number not in added)
    try:
        data = b"".join(b"%s %d\n" % (base64.b64encode(bytes_of(text)), number) for number, text in ranks)
    except KeyError as error:
        raise ModelError(f"the tokenizer is not byte-level: it spells {error.args[0]!r}") from error
    if hashlib.sha256(data).hexdigest() != RANKS_SUM:
        raise ModelError(
            "the tokenizer has the markers of gpt-oss but another vocabulary, which openai-harmony does not know"
        )
    return data


def write_ranks(tokenizer_json: bytes, cache: Path) -> Path:
    """The folder for `ENCODINGS_VARIABLE` below `cache`; its file is written where it is missing or damaged. Raises
    `ModelError`."""
    folder = cache / "harmony"
    path = folder / _NAME
    data = ranks_file(tokenizer_json)
    if not path.is_file() or path.read_bytes() != data:
        put_in_cache(path, data)
    return folder
