"""A GGUF file's tokenizer in the form of ``tokenizer.json`` (the ``tokenizers`` library): byte-level BPE (``gpt2``) and
SentencePiece BPE (``llama``).

For ``gpt2`` the GGUF names the pre-tokenizer only, in ``tokenizer.ggml.pre``; each name known here stands for the rules
of the model family's own published tokenizer. An unknown name is refused: a wrong pre-tokenizer would make other ids
for the same text and nothing would show it. Control and unknown tokens become special added tokens, user-defined ones
added tokens that are not special, whose text is matched before merging. ``llama`` needs tokens, scores and types;
whether a dummy blank stands before text says ``tokenizer.ggml.add_space_prefix`` (if it says nothing, it does).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rollbook.errors import ModelError
from rollbook.models.document import added_token, byte_level, sequence, split, write
from rollbook.models.gguf_file import GgufValue
from rollbook.models.pieces import SPECIAL, Pieces, PieceType, pieces_json
from rollbook.models.tiktoken_file import FAMILIES

__all__ = ["tokenizer_json"]

_PRE_TOKENIZERS: dict[str, dict[str, Any]] = {
    "gpt-2": byte_level(use_regex=True),
    "smollm": sequence({"type": "Digits", "individual_digits": True}, byte_level(use_regex=True)),
    "qwen2": sequence(split(FAMILIES["qwen"].pattern), byte_level(use_regex=False)),
}
_NORMALIZERS: dict[str, dict[str, Any]] = {"qwen2": {"type": "NFC"}}


def tokenizer_json(metadata: Mapping[str, GgufValue], source: str) -> bytes:
    """The bytes of a ``tokenizer.json``. `source` names the file in errors. Raises `ModelError`."""
    model, pre = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if model == "llama":
        return pieces_json(_pieces(metadata, source), source)
    if model != "gpt2" or not isinstance(pre, str) or pre not in _PRE_TOKENIZERS:
        known = ", ".join(_PRE_TOKENIZERS)
        raise ModelError(
            f"{source}: tokenizer {model!r} with pre-tokenizer {pre!r} cannot be rebuilt from the GGUF; supported is "
            f"'llama' and 'gpt2' with one of {known}. Give the model's tokenizer folder (with tokenizer.json)"
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
        added_token(number, tokens[number], special=kind in SPECIAL)
        for number, kind in enumerate(types)
        if kind in (*SPECIAL, PieceType.USER_DEFINED)
    ]
    return write(
        {"type": "BPE", "vocab": vocab, "merges": merges},
        added,
        normalizer=_NORMALIZERS.get(pre),
        pre_tokenizer=_PRE_TOKENIZERS[pre],
        decoder=byte_level(use_regex=True),
    )


def _pieces(metadata: Mapping[str, GgufValue], source: str) -> Pieces:
    scores, types = (metadata.get(f"tokenizer.ggml.{key}") for key in ("scores", "token_type"))
    if not isinstance(scores, list) or not isinstance(types, list):
        raise ModelError(f"{source}: the GGUF holds no scores and types of its tokens; give the tokenizer folder")
    return Pieces(
        texts=_strings(metadata, "tokenizer.ggml.tokens", source),
        scores=[score for score in scores if isinstance(score, float)],
        types=[kind for kind in types if isinstance(kind, int)],
        unigram=False,
        dummy_blank=metadata.get("tokenizer.ggml.add_space_prefix", True) is True,
    )


def _strings(metadata: Mapping[str, GgufValue], key: str, source: str) -> list[str]:
    value = metadata.get(key)
    if not isinstance(value, list) or not value:
        raise ModelError(f"{source}: the GGUF holds no {key}; give the model's tokenizer folder (with tokenizer.json)")
    strings = [item for item in value if isinstance(item, str)]
    if len(strings) != len(value):
        raise ModelError(f"{source}: {key} holds something that is not text")
    return strings
