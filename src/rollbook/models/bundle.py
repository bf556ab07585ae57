"""What the other rooms need to know of a model, as one frozen value: tokenizer and template as bytes and text,
special ids, hashes.

It comes out of a GGUF file or out of a tokenizer folder in the form of ``transformers``, and looks the same from
both. What a file does not say is None or empty; nothing is guessed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from rollbook.errors import ModelError
from rollbook.models.checksum import file_sha256
from rollbook.models.fetch import ProgressCallback, fetch
from rollbook.models.gguf_file import GgufValue, read_gguf
from rollbook.models.gguf_tokenizer import tokenizer_json
from rollbook.models.names import KnownModel, parse_model_name

__all__ = ["ModelFiles", "load_folder", "load_gguf", "load_model"]


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
    special_tokens: dict[str, str]
    """The names that templates use (``bos_token``, ``eos_token`` ...) and their texts."""
    eos_id: int | None
    """The end token that the model names first."""
    stop_ids: frozenset[int]
    """Every token that ends a generation, `eos_id` among them."""
    context_length: int | None
    """Tokens that the model was trained for; None where the files do not say."""
    licence: str | None
    """As the file names it; None where it does not say."""


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


def load_model(name: str, cache: Path, progress: ProgressCallback | None = None) -> ModelFiles:
    """The model called `name` (without ``local:``), fetched into `cache` if need be. Raises `ModelError`."""
    known = parse_model_name(name)
    path = fetch(known, cache, progress) if isinstance(known, KnownModel) else known
    return load_gguf(path, cache, name=name)


def load_gguf(path: Path, cache: Path, *, name: str | None = None) -> ModelFiles:
    """Read a GGUF file's head, and its sum (remembered in `cache`). Raises `ModelError`."""
    metadata = read_gguf(path)
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
        template_hash=_text_hash(template),
        special_tokens=_special_tokens(metadata),
        eos_id=_token_id(metadata, "eos"),
        stop_ids=frozenset(ends | _ends_by_text(metadata)),
        context_length=length if isinstance(length, int) else None,
        licence=_text(metadata, "general.license"),
    )


def load_folder(folder: Path) -> ModelFiles:
    """Read a tokenizer folder: ``tokenizer.json`` and what configuration lies beside it. Raises `ModelError`."""
    path = folder / "tokenizer.json"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{folder} is no tokenizer folder: cannot read tokenizer.json ({error.strerror})") from error
    config = _read(folder / "tokenizer_config.json", dict[str, Any])
    ids = _folder_ids(path, data)
    texts = {role: text for role in _ROLES.values() if (text := _token_text(config.get(role))) is not None}
    eos_id = ids.get(texts.get("eos_token", ""))
    ends = _read(folder / "generation_config.json", _GenerationConfig).ends
    template = _folder_template(folder, config)
    length = _read(folder / "config.json", dict[str, Any]).get("max_position_embeddings")
    return ModelFiles(
        name=str(folder),
        weights=None,
        weights_hash=None,
        tokenizer_json=data,
        tokenizer_hash=hashlib.sha256(data).hexdigest(),
        template=template,
        template_hash=_text_hash(template),
        special_tokens=texts,
        eos_id=eos_id,
        stop_ids=ends if eos_id is None else ends | {eos_id},
        context_length=length if isinstance(length, int) else None,
        licence=None,
    )


def _text_hash(text: str | None) -> str:
    return "" if text is None else hashlib.sha256(text.encode()).hexdigest()


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
    return {number for number, token in enumerate(_tokens(metadata)) if token in _END_TEXTS}


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Vocabulary(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _GenerationConfig(msgspec.Struct):
    eos_token_id: int | list[int] | None = None

    @property
    def ends(self) -> frozenset[int]:
        found = self.eos_token_id
        return frozenset([found] if isinstance(found, int) else found or ())


_Config = TypeVar("_Config", dict[str, Any], _GenerationConfig)


class _TokenizerFile(msgspec.Struct):
    model: _Vocabulary
    added_tokens: list[_AddedToken] = []


def _folder_ids(path: Path, data: bytes) -> dict[str, int]:
    try:
        file = msgspec.json.decode(data, type=_TokenizerFile)
    except msgspec.DecodeError as error:
        raise ModelError(f"{path} is not a tokenizer file of the tokenizers library: {error}") from error
    vocab = file.model.vocab
    ids = dict(vocab) if isinstance(vocab, dict) else {text: number for number, (text, _) in enumerate(vocab)}
    return ids | {token.content: token.id for token in file.added_tokens}


def _read(path: Path, kind: type[_Config]) -> _Config:
    """The object in `path`; an empty one where there is no such file."""
    try:
        data = path.read_bytes() if path.exists() else b"{}"
        return msgspec.json.decode(data, type=kind)
    except (OSError, msgspec.DecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _token_text(value: Any) -> str | None:
    """A special token is spelled as text, or as an object with its text in ``content``."""
    if isinstance(value, dict):
        return _token_text(cast("dict[str, Any]", value).get("content"))
    return value if isinstance(value, str) else None


def _folder_template(folder: Path, config: dict[str, Any]) -> str | None:
    path = folder / "chat_template.jinja"
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        pass
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error
    template = config.get("chat_template")
    if template is None or isinstance(template, str):
        return template
    raise ModelError(f"{folder} holds several named chat templates: put the wanted one into chat_template.jinja")
