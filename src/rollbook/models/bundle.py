"""What the other rooms need to know of a model, as one frozen value: tokenizer and template as bytes and text,
special ids, hashes.

It comes out of a GGUF file or out of a tokenizer folder in the form of ``transformers``, and looks the same from
both (`rollbook.models.folder` reads those). What a file does not say is None or empty; nothing is guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec

from rollbook.errors import ModelError
from rollbook.models.checksum import file_sha256
from rollbook.models.config_files import DEFAULT_TEMPLATE
from rollbook.models.fetch import ProgressCallback, fetch
from rollbook.models.gguf_file import F32, GgufValue, read_head
from rollbook.models.gguf_tokenizer import tokenizer_json
from rollbook.models.names import KnownModel, ShippedModel, parse_model_name

__all__ = ["ModelFiles", "load_gguf", "load_model", "template_hash"]


class ModelFiles(msgspec.Struct, frozen=True, kw_only=True):
    """One model's tokenizer, template and, where there are any, weights."""

    name: str
    """As it was asked for: a name of the catalogue, or a path."""
    weights: Path | None
    """The GGUF file; None for a tokenizer folder."""
    weights_hash: str | None
    """sha256 of the weights in hex; None where there are none."""
    tokenizer_json: bytes
    """A ``tokenizer.json`` for the ``tokenizers`` library."""
    tokenizer_hash: str
    """sha256 of `tokenizer_json` in hex."""
    template: str | None
    """The chat template (Jinja); None where the model has none."""
    template_hash: str
    """sha256 of the template in hex; empty where there is none."""
    templates: dict[str, str] = {}
    """Every chat template by name; `template` is the one called ``default``."""
    special_tokens: dict[str, str]
    """The names that templates use (``bos_token``, ``eos_token`` ...) and their texts."""
    adds_bos: bool | None = None
    """Whether the files tell other programs to put the begin token before every text; None where they do not say."""
    eos_id: int | None
    """The end token that the model names first."""
    stop_ids: frozenset[int]
    """Every token that ends a generation, `eos_id` among them."""
    context_length: int | None
    """Tokens that the model was trained for; None where the files do not say."""
    licence: str | None
    """As the file names it; None where it does not say."""
    float32: bool = False
    """True where every weight is stored as float32: an engine that computes in float32 too loses nothing."""


_ROLES = {"bos": "bos_token", "eos": "eos_token", "unknown": "unk_token", "padding": "pad_token"}
_END_KEYS = ("eos", "eot", "eom")

# Control tokens that llama.cpp takes as the end of a generation by their text, whatever the file's own ids say.
_END_TEXTS = frozenset(
    {
        "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
        "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<end_of_utterance>",
        "<\uff5cend\u2581of\u2581sentence\uff5c>",
        "<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]", "<|fim_repo|>",
        "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>", "<|file_sep|>",
    }
)  # fmt: skip

# Formats in which "<|end|>" ends a message within a turn (gpt-oss, Solar), as llama.cpp knows them.
_TURN_ENDS = ({"<|return|>", "<|call|>"}, {"<|calls|>", "<|flush|>"})


def load_model(name: str, cache: Path, progress: ProgressCallback | None = None) -> ModelFiles:
    """The model called `name` (without ``local:``), fetched into `cache` if need be. Raises `ModelError`."""
    known = parse_model_name(name)
    if isinstance(known, ShippedModel):
        return _shipped(known, cache)
    path = fetch(known, cache, progress) if isinstance(known, KnownModel) else known
    return load_gguf(path, cache, name=name)


def _shipped(model: ShippedModel, cache: Path) -> ModelFiles:
    files = load_gguf(model.path, cache, name=model.name)
    if files.weights_hash != model.sha256:
        raise ModelError(
            f"{model.path} is not the {model.name} that comes with this version (sha256 {files.weights_hash}): install "
            "Rollbook again"
        )
    return files


def load_gguf(path: Path, cache: Path, *, name: str | None = None) -> ModelFiles:
    """Read a GGUF file's head, and its sum (remembered in `cache`). Raises `ModelError`."""
    head = read_head(path)
    metadata = head.metadata
    data = tokenizer_json(metadata, path.name)
    template = _text(metadata, "tokenizer.chat_template")
    length = metadata.get(f"{metadata.get('general.architecture')}.context_length")
    ends = {number for key in _END_KEYS if (number := _token_id(metadata, key)) is not None}
    return ModelFiles(
        name=name or str(path),
        weights=path,
        weights_hash=file_sha256(path, cache / "checksums"),
        tokenizer_json=data,
        tokenizer_hash=hashlib.sha256(data).hexdigest(),
        template=template,
        template_hash=template_hash(template),
        templates=_templates(metadata),
        special_tokens=_special_tokens(metadata),
        adds_bos=adds if isinstance(adds := metadata.get("tokenizer.ggml.add_bos_token"), bool) else None,
        eos_id=_token_id(metadata, "eos"),
        stop_ids=frozenset(ends | _ends_by_text(metadata)),
        context_length=length if isinstance(length, int) else None,
        licence=_text(metadata, "general.license"),
        float32=bool(head.tensors) and all(row.kind == F32 for row in head.tensors),
    )


def template_hash(template: str | None) -> str:
    """sha256 of the template in hex; empty where there is none."""
    return "" if template is None else hashlib.sha256(template.encode()).hexdigest()


def _templates(metadata: Mapping[str, GgufValue]) -> dict[str, str]:
    """The template without a name is the default one; others have their name behind a dot."""
    head = "tokenizer.chat_template"
    found = {key: value for key, value in metadata.items() if key == head or key.startswith(f"{head}.")}
    return {key[len(head) + 1 :] or DEFAULT_TEMPLATE: text for key, text in found.items() if isinstance(text, str)}


def _text(metadata: Mapping[str, GgufValue], key: str) -> str | None:
    value = metadata.get(key)
    return value if isinstance(value, str) else None


def _tokens(metadata: Mapping[str, GgufValue]) -> list[Any]:
    tokens = metadata.get("tokenizer.ggml.tokens")
    return tokens if isinstance(tokens, list) else []


def _token_id(metadata: Mapping[str, GgufValue], role: str) -> int | None:
    value = metadata.get(f"tokenizer.ggml.{role}_token_id")
    return value if isinstance(value, int) and 0 <= value < len(_tokens(metadata)) else None


def _special_tokens(metadata: Mapping[str, GgufValue]) -> dict[str, str]:
    tokens = _tokens(metadata)
    ids = {name: _token_id(metadata, role) for role, name in _ROLES.items()}
    return {name: tokens[number] for name, number in ids.items() if number is not None}


def _ends_by_text(metadata: Mapping[str, GgufValue]) -> set[int]:
    found = {token: number for number, token in enumerate(_tokens(metadata)) if token in _END_TEXTS}
    if any(found.keys() >= pair for pair in _TURN_ENDS):
        found.pop("<|end|>", None)
    return set(found.values())
