"""A GGUF file's tokenizer in the form of ``tokenizer.json`` (the ``tokenizers`` library), for byte-level BPE.

The GGUF names the pre-tokenizer only, in ``tokenizer.ggml.pre``; each name known here stands for the rules of the
model family's own published tokenizer. Control tokens (type 3) and the unknown token (type 2) become special added
tokens, user-defined ones (type 4) added tokens that are not special, whose text is matched before merging. An unknown
name is refused: a wrong pre-tokenizer would make other ids for the same text and nothing would show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from rollbook.errors import ModelError
from rollbook.models.gguf_file import GgufValue

__all__ = ["tokenizer_json"]

_UNKNOWN, _CONTROL, _USER_DEFINED = 2, 3, 4
_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _byte_level(use_regex: bool) -> dict[str, Any]:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": use_regex}


def _split(digits: str) -> dict[str, Any]:
    pattern = rf"{_CONTRACTIONS}|[^\r\n\p{{L}}\p{{N}}]?\p{{L}}+|{digits}{_REST}"
    return {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}


def _sequence(*parts: dict[str, Any]) -> dict[str, Any]:
    return {"type": "Sequence", "pretokenizers": list(parts)}


_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": _byte_level(True),
    "smollm": _sequence({"type": "Digits", "individual_digits": True}, _byte_level(True)),
    "qwen2": _sequence(_split(r"\p{N}"), _byte_level(False)),
}
_NORMALIZERS: dict[str, dict[str, Any]] = {"qwen2": {"type": "NFC"}}


def tokenizer_json(metadata: Mapping[str, GgufValue], source: str) -> bytes:
    """The bytes of a ``tokenizer.json``. `source` names the file in errors. Raises `ModelError`."""
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model != "gpt2" or not isinstance(pre, str) or pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ModelError(
            f"{source}: tokenizer {model!r} with pre-tokenizer {pre!r} cannot be rebuilt from the GGUF; supported is "
            f"'gpt2' with one of {known}. Give the model's tokenizer folder (with tokenizer.json) beside it"
        )
    tokens = _strings(metadata, "tokenizer.ggml.tokens", source)
    merges = _strings(metadata, "tokenizer.ggml.merges", source)
    types = metadata.get("tokenizer.ggml.token_type")
    if not isinstance(types, list) or len(types) != len(tokens):
        raise ModelError(f"{source}: tokenizer.ggml.token_type does not cover the {len(tokens)} tokens")
    vocab = {token: number for number, token in enumerate(tokens)}
    if len(vocab) != len(tokens):
        raise ModelError(f"{source}: the vocabulary holds the same token twice")
    added = [
        _added(number, tokens[number], special=kind != _USER_DEFINED)
        for number, kind in enumerate(types)
        if kind in (_UNKNOWN, _CONTROL, _USER_DEFINED)
    ]
    return msgspec.json.encode(_document(pre, vocab, merges, added))


def _document(pre: str, vocab: dict[str, int], merges: list[str], added: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": _NORMALIZERS.get(pre),
        "pre_tokenizer": _PRE_TOKENIZERS[pre],
        "post_processor": None,
        "decoder": _byte_level(True),
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "vocab": vocab,
            "merges": merges,
        },
    }


def _added(number: int, content: str, *, special: bool) -> dict[str, Any]:
    flags = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    return {"id": number, "content": content, **flags, "special": special}


def _strings(metadata: Mapping[str, GgufValue], key: str, source: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value:
        raise ModelError(f"{source}: the GGUF holds no {key}; give the model's tokenizer folder (with tokenizer.json)")
    strings = [item for item in value if isinstance(item, str)]
    if len(strings) != len(value):
        raise ModelError(f"{source}: {key} holds something that is not text")
    return strings
