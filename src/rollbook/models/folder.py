"""A folder with a tokenizer, in any of the forms that models are published in.

The first of these that is there counts: ``tokenizer.json``; ``tekken.json`` (Mistral); ``tokenizer.model``
(SentencePiece, or a rank file as Llama 3 has it); ``tiktoken.model`` and ``*.tiktoken`` (rank files). All but the first
are converted. A rank file says neither how text is cut nor what its control tokens are: a family that is known by the
code beside it does (`FAMILIES`), any other has to be named.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from rollbook.errors import ModelError
from rollbook.models.bundle import ModelFiles, template_hash
from rollbook.models.config_files import DEFAULT_TEMPLATE, ConfigFiles
from rollbook.models.extended import with_added
from rollbook.models.sentencepiece_file import sentencepiece_json, sentencepiece_roles
from rollbook.models.tekken import TEKKEN_ROLES, tekken_json
from rollbook.models.tiktoken_file import FAMILIES, TiktokenFamily, is_rank_file, read_ranks, tiktoken_json

__all__ = ["has_tokenizer", "load_folder"]

_NAMES = ("tokenizer.json", "tekken.json", "tokenizer.model", "tiktoken.model")


def load_folder(path: Path, *, family: str | TiktokenFamily | None = None) -> ModelFiles:
    """Read a tokenizer folder, or the tokenizer file `path` with what lies beside it. `family`: for a rank file, a
    name of `FAMILIES` or what is needed itself; None: known by the code beside it. Raises `ModelError`."""
    file = path if path.is_file() else _find(path)
    config = ConfigFiles(file.parent)
    data, roles = _tokenizer(file, config, family)
    ids = _ids(file, data)
    texts = {**roles, **config.special_tokens}
    eos_id = ids.get(texts.get("eos_token", ""))
    templates = config.templates()
    template = templates.get(DEFAULT_TEMPLATE)
    return ModelFiles(
        name=str(path),
        weights=None,
        weights_hash=None,
        tokenizer_json=data,
        tokenizer_hash=hashlib.sha256(data).hexdigest(),
        template=template,
        template_hash=template_hash(template),
        templates=templates,
        special_tokens=texts,
        adds_bos=config.adds_bos,
        eos_id=eos_id,
        stop_ids=config.ends if eos_id is None else config.ends | {eos_id},
        context_length=config.context_length,
        licence=None,
    )


def has_tokenizer(folder: Path) -> bool:
    """Whether there is a file in `folder` that `load_folder` would take, or would have to choose from."""
    return any((folder / name).is_file() for name in _NAMES) or any(folder.glob("*.tiktoken"))


def _find(folder: Path) -> Path:
    ranks = sorted(folder.glob("*.tiktoken"))
    found = [file for name in _NAMES if (file := folder / name).is_file()] + ranks[:1]
    if not found or (found[0] in ranks and len(ranks) > 1):
        raise ModelError(
            f"{folder} is no tokenizer folder: cannot read tokenizer.json, nor is there one of "
            f"{', '.join((*_NAMES[1:], '*.tiktoken'))}"
        )
    return found[0]


def _tokenizer(file: Path, config: ConfigFiles, family: str | TiktokenFamily | None) -> tuple[bytes, Mapping[str, str]]:
    """``tokenizer.json`` and what the file itself says of special tokens."""
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ModelError(f"cannot read {file}: {error.strerror}") from error
    if file.name.endswith(".json") and "tekken" not in file.name:
        return data, {}
    if file.name.endswith(".json"):
        return with_added(tekken_json(data, str(file)), config.added, str(file)), TEKKEN_ROLES
    if is_rank_file(data):
        return _from_ranks(file, data, config, family), {}
    return with_added(sentencepiece_json(data, str(file)), config.added, str(file)), sentencepiece_roles(data)


def _from_ranks(file: Path, data: bytes, config: ConfigFiles, family: str | TiktokenFamily | None) -> bytes:
    ranks = read_ranks(data, str(file))
    chosen = _family(file, config, family)
    named = {number: entry.content for number, entry in config.added.items()}
    control = chosen.tokens(max(ranks.values()) + 1, named)
    return with_added(tiktoken_json(ranks, chosen.pattern, control, nfc=chosen.nfc), config.added, str(file))


def _family(file: Path, config: ConfigFiles, family: str | TiktokenFamily | None) -> TiktokenFamily:
    if isinstance(family, TiktokenFamily):
        return family
    said = f"{config.code} {file.name}".lower()
    name = family or next((known for known in ("kimi", "qwen") if known in said), "")
    if name not in FAMILIES:
        raise ModelError(
            f"{file} does not say how text is cut before merging ({name or 'no family'} is not known): pass "
            f"load_folder(..., family=...) with one of {', '.join(FAMILIES)}, or a TiktokenFamily with the pattern "
            "that the model's own tokenizer code has"
        )
    return FAMILIES[name]


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _Vocabulary(msgspec.Struct):
    vocab: dict[str, int] | list[tuple[str, float]]


class _TokenizerFile(msgspec.Struct):
    model: _Vocabulary
    added_tokens: list[_AddedToken] = []


def _ids(path: Path, data: bytes) -> dict[str, int]:
    try:
        file = msgspec.json.decode(data, type=_TokenizerFile)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not a tokenizer file of the tokenizers library: {error}") from error
    vocab = file.model.vocab
    ids = dict(vocab) if isinstance(vocab, dict) else {text: number for number, (text, _) in enumerate(vocab)}
    return ids | {token.content: token.id for token in file.added_tokens}
