"""Check a chat template before anything runs on it: of a model, of a tokenizer folder, or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date as Date  # noqa: N812 (a parameter is called `date`)
from datetime import datetime, time
from pathlib import Path
from typing import Any

from rollbook.errors import ModelError, UsageError
from rollbook.models import ModelFiles, default_cache, load_folder, load_gguf
from rollbook.render.encode import Encoder, shared_encoder
from rollbook.render.findings import TemplateReport
from rollbook.render.judge import judge
from rollbook.render.settings import plain_variables
from rollbook.render.template import ChatTemplate

__all__ = ["as_moment", "check_template", "read_files", "read_template", "template_of"]

MAX_TEMPLATE = 1 << 22
"""Bytes that a template file may have."""


@dataclass(frozen=True, slots=True)
class _Source:
    """What is checked."""

    name: str
    text: str
    stops: tuple[str, ...] = ()
    special_tokens: Mapping[str, str] = field(default_factory=dict[str, str])
    encoder: Encoder | None = None


def check_template(
    path: Path | str,
    *,
    template: Path | None = None,
    stops: Sequence[str] = (),
    date: Date | None = None,
    variables: Mapping[str, Any] | None = None,
    cache: Path | None = None,
) -> TemplateReport:
    """What the template at `path` does, property by property; ``report.sound`` says whether to train on it.

    `path`: a tokenizer folder, a GGUF file, or a template (Jinja) alone. `template`: a file with the template to use
    instead of the model's own. `stops`: spellings of the tokens that end an assistant's turn; needed for a template
    alone, otherwise the model's. `date`: for a template that asks for one. `variables`: further template variables.
    Raises `UsageError` with the remedy.
    """
    source = _read(Path(path), template, tuple(stops), cache)
    if not source.stops:
        raise UsageError(
            f"{source.name}: nothing says which token ends an assistant's turn; name it (stops, or --stop TOKEN)"
        )
    if "" in source.stops:
        raise UsageError(f"{source.name}: an empty text ends no turn; name a token (stops, or --stop TOKEN)")
    compiled = ChatTemplate(source.text, source.special_tokens, plain_variables(variables or {}), as_moment(date))
    return judge(compiled, source.stops, source.name, source.encoder)[1]


def as_moment(date: Date | None) -> datetime | None:
    """The beginning of the day that a template is told."""
    return None if date is None else datetime.combine(date, time())


def read_files(path: Path, cache: Path) -> ModelFiles:
    """The tokenizer folder (or the tokenizer file) or the GGUF file at `path`. Raises `ModelError`."""
    return load_gguf(path, cache) if path.suffix == ".gguf" and not path.is_dir() else load_folder(path)


def template_of(files: ModelFiles, template: str | None) -> str:
    """`template`, or where there is none the model's own. Raises `ModelError` where that has none."""
    text = files.template if template is None else template
    if text is None:
        raise ModelError(f"{files.name} has no chat template; give one (template, or --template FILE)")
    return text


def read_template(path: Path) -> str:
    """The text of a template file."""
    try:
        with path.open("rb") as file:
            data = file.read(MAX_TEMPLATE + 1)  # a device or a pipe does not tell its size
        if len(data) > MAX_TEMPLATE:
            raise ModelError(f"{path} is no chat template: it is larger than {MAX_TEMPLATE} bytes")
        return data.decode("utf-8").replace("\r\n", "\n").replace("\r", "\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ModelError(f"cannot read {path}: {error}") from error


def _read(path: Path, template: Path | None, stops: tuple[str, ...], cache: Path | None) -> _Source:
    if path.is_dir() or path.suffix == ".gguf":
        return _of_model(read_files(path, cache or default_cache()), template, stops)
    if template is not None:
        raise UsageError(f"{path} is a template already: give a tokenizer folder or a GGUF file, or no second template")
    return _Source(path.name, read_template(path), stops)


def _of_model(files: ModelFiles, template: Path | None, stops: tuple[str, ...]) -> _Source:
    text = template_of(files, None if template is None else read_template(template))
    encoder = shared_encoder(files.tokenizer_json)
    spelled = {token: name for name, token in encoder.added.items()}
    known = tuple(sorted(spelled[token] for token in files.stop_ids if token in spelled))
    return _Source(files.name, text, stops or known, files.special_tokens, encoder)
