"""A tokenizer without its control tokens, so that no text can make one.

Control tokens leave the list of added tokens, and their words in the vocabulary become words that no text can spell
(unless a merge of a BPE model needs them). Added tokens that are
nothing but white space are text like any other and stay; so does a run of ``▁``, which is how SentencePiece spells
blanks. A tokenizer that puts its dummy blank before the very first segment only (``prepend_scheme: first``) has a
second form, for text that stands behind a control token.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from rollbook.errors import ModelError

__all__ = ["behind_first", "blank_sign", "is_white", "unknown_token", "without_control"]

_Parts = dict[str, Any]


def blank_sign(parts: Mapping[str, Any]) -> str | None:
    """The character that a SentencePiece-style vocabulary writes for a blank (``▁``); None for other kinds."""
    for part in _flat(parts.get("normalizer"), "normalizers") + _flat(parts.get("pre_tokenizer"), "pretokenizers"):
        match part:
            case {"type": "Replace", "pattern": {"String": " "}, "content": str(sign)} if len(sign) == 1:
                return sign
            case {"type": "Metaspace", "replacement": str(sign)}:
                return sign
            case _:
                continue
    return None


def is_white(text: str, sign: str | None) -> bool:
    """True where an added token is white space only."""
    return (text if sign is None else text.replace(sign, " ")).isspace()


def unknown_token(model: Mapping[str, Any]) -> int | None:
    """The id that stands for what the vocabulary cannot spell; None where it has none."""
    match model:
        case {"type": "Unigram", "unk_id": int(token)}:
            return token
        case {"unk_token": str(name), "vocab": vocab}:
            return cast("dict[str, int]", vocab).get(name)
        case _:
            return None


def without_control(parts: _Parts, names: set[str]) -> _Parts:
    """The tokenizer without the added tokens called `names`. Raises `ModelError` for a kind of model that is not
    known."""
    kept = [entry for entry in parts["added_tokens"] if entry["content"] not in names]
    match parts["model"]:
        case {"type": "Unigram"}:
            model = _unigram_without(parts["model"], names)
        case {"type": "BPE"} | {"merges": _}:
            model = _bpe_without(parts["model"], names)
        case _:
            raise ModelError(f"a tokenizer model of type {parts['model'].get('type')!r} is not supported")
    return {**parts, "added_tokens": kept, "model": model}


def behind_first(parts: _Parts) -> _Parts | None:
    """The tokenizer for text behind a control token; None where it is the same one."""
    part = parts.get("pre_tokenizer")
    changed = _never(part)
    return None if changed == part else {**parts, "pre_tokenizer": changed}


def _hidden(name: str) -> str:
    """A blank never reaches the model: such a tokenizer spells it otherwise."""
    return f" {name}"


def _bpe_without(model: _Parts, names: set[str]) -> _Parts:
    merges = cast("list[Any]", model["merges"])
    pairs = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in merges)
    hidden = names - {part for first, second in pairs for part in (first, second, first + second)}
    words = cast("dict[str, int]", model["vocab"])
    vocab = {_hidden(word) if word in hidden else word: at for word, at in words.items()}
    unknown = model.get("unk_token")
    return {**model, "vocab": vocab, "unk_token": _hidden(unknown) if unknown in hidden else unknown}


def _unigram_without(model: _Parts, names: set[str]) -> _Parts:
    words = cast("list[tuple[str, float]]", model["vocab"])
    return {**model, "vocab": [(_hidden(word) if word in names else word, score) for word, score in words]}


def _never(part: Any) -> Any:
    match part:
        case {"type": "Metaspace", "prepend_scheme": "first"}:
            return {**cast("_Parts", part), "prepend_scheme": "never"}
        case {"type": "Sequence", "pretokenizers": [*inner]}:
            return {**cast("_Parts", part), "pretokenizers": [_never(each) for each in inner]}
        case _:
            return part


def _flat(part: Any, key: str) -> list[Any]:
    match part:
        case {"type": "Sequence"}:
            inner = cast("list[Any]", cast("_Parts", part)[key])
            return [found for each in inner for found in _flat(each, key)]
        case None:
            return []
        case _:
            return [part]
