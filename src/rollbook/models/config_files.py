"""The files beside a tokenizer, in the form of ``transformers``: what they say of templates, special tokens, ends.

Order where several say the same: for the template ``chat_template.jinja``, then ``tokenizer_config.json``, then
``chat_template.json``; for special tokens ``tokenizer_config.json``, then ``special_tokens_map.json``; for ends
``generation_config.json``, then ``config.json``. A missing file says nothing; a damaged one is an error.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar, cast

import msgspec

from rollbook.errors import ModelError

__all__ = ["DEFAULT_TEMPLATE", "AddedEntry", "ConfigFiles"]

DEFAULT_TEMPLATE = "default"
"""The name of a template that has none."""


_Kind = TypeVar("_Kind")


class AddedEntry(msgspec.Struct, frozen=True):
    """A token of ``added_tokens_decoder``."""

    content: str
    lstrip: bool = False
    rstrip: bool = False
    single_word: bool = False
    normalized: bool = False
    special: bool = False


class _Tokenizer(msgspec.Struct):
    """``tokenizer_config.json``, as far as it has a fixed form."""

    added_tokens_decoder: dict[int, AddedEntry] = {}
    add_bos_token: bool | None = None
    tokenizer_class: str | None = None
    auto_map: Any = None
    chat_template: Any = None


class _Ends(msgspec.Struct):
    eos_token_id: int | list[int] | None = None


class _Length(msgspec.Struct):
    max_position_embeddings: int | None = None


class _Model(_Ends):
    max_position_embeddings: int | None = None
    text_config: _Length | None = None


class _Named(msgspec.Struct):
    name: str
    template: str


class ConfigFiles:
    """The configuration in one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        path = folder / "tokenizer_config.json"
        self._tokenizer = _read(path, _Tokenizer) or _Tokenizer()
        self._words = _read_object(folder / "special_tokens_map.json") | _read_object(path)
        self._model = _read(folder / "config.json", _Model) or _Model()

    @property
    def added(self) -> dict[int, AddedEntry]:
        """Tokens by id that the configuration adds to a vocabulary."""
        return self._tokenizer.added_tokens_decoder

    @property
    def adds_bos(self) -> bool | None:
        """Whether other programs are told to put the begin token in front; None where nothing is said."""
        return self._tokenizer.add_bos_token

    @property
    def code(self) -> str:
        """Names of the classes and modules that the tokenizer was written for."""
        return f"{self._tokenizer.tokenizer_class} {self._tokenizer.auto_map}"

    @property
    def special_tokens(self) -> dict[str, str]:
        """Special tokens by the names that templates use."""
        found = {name: _token_text(value) for name, value in self._words.items() if name.endswith("_token")}
        return {name: text for name, text in found.items() if text is not None}

    @property
    def ends(self) -> frozenset[int]:
        """Tokens that end a generation."""
        generation = _read(self._folder / "generation_config.json", _Ends)
        found = self._model.eos_token_id if generation is None else generation.eos_token_id
        return frozenset([found] if isinstance(found, int) else found or ())

    @property
    def context_length(self) -> int | None:
        """Tokens that the model was trained for."""
        inner = self._model.text_config
        return self._model.max_position_embeddings or (None if inner is None else inner.max_position_embeddings)

    def templates(self) -> dict[str, str]:
        """Chat templates by name; one without a name is `DEFAULT_TEMPLATE`."""
        further = sorted((self._folder / "additional_chat_templates").glob("*.jinja"))
        extra = {path.stem: _text(path) for path in further}
        path = self._folder / "chat_template.jinja"
        if path.exists():
            return {**extra, DEFAULT_TEMPLATE: _text(path)}
        for path in (self._folder / "tokenizer_config.json", self._folder / "chat_template.json"):
            found = _read_object(path).get("chat_template")
            if found is not None:
                return extra | _named(found, path)
        return extra


def _read_object(path: Path) -> dict[str, Any]:
    """The object in `path`; an empty one where there is no such file. Raises `ModelError`."""
    return _read(path, dict[str, Any]) or {}


def _read(path: Path, kind: type[_Kind]) -> _Kind | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=kind) if path.exists() else None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _named(found: object, path: Path) -> dict[str, str]:
    """A template, or a list of named ones."""
    if isinstance(found, str):
        return {DEFAULT_TEMPLATE: found}
    try:
        return {each.name: each.template for each in msgspec.convert(found, list[_Named])}
    except msgspec.ValidationError as error:
        raise ModelError(f"cannot read {path}: its chat template is neither text nor a list of them") from error


def _token_text(value: Any) -> str | None:
    """A special token is spelled as text, or as an object with its text in ``content``."""
    if isinstance(value, dict):
        return _token_text(cast("dict[str, Any]", value).get("content"))
    return value if isinstance(value, str) else None
