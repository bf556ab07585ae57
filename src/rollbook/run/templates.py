"""Check a chat template before anything runs on it: of a model, of a tokenizer folder, or alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date as Date  # noqa: N812 (a parameter is called `date`)
from datetime import datetime, time
from pathlib import Path
from typing import Any, cast

from rollbook.errors import ModelError, UsageError
from rollbook.models import ModelFiles, ProgressCallback
from rollbook.models.harmony_ranks import is_harmony
from rollbook.policy import parse_policy_name
from rollbook.render.encode import Encoder, shared_encoder
from rollbook.render.findings import TemplateReport
from rollbook.render.judge import judge
from rollbook.render.settings import plain_variables
from rollbook.render.template import ChatTemplate
from rollbook.run.access import Access
from rollbook.run.model_files import files_at, spells_policy
from rollbook.run.served import ModelSource, files_for

__all__ = ["VariablesUnread", "as_moment", "check_template", "compile_template", "read_template", "template_of"]

MAX_TEMPLATE = 1 << 22
"""Bytes that a template file may have."""

_SPECIAL = ("bos_token", "eos_token", "pad_token", "unk_token")
"""What a model's own files would say, and the user says of a template alone."""


class VariablesUnread(ModelError):
    """The template never reads variables that are set, so nothing would come of them: a typo, or another template."""

    def __init__(self, words: str, names: frozenset[str]) -> None:
        super().__init__(words)
        self.names = names


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
    tokenizer: Path | str | None = None,
    api_key: str | None = None,
    template: Path | str | None = None,
    stops: Sequence[str] = (),
    date: Date | None = None,
    variables: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> TemplateReport:
    """What the template at `path` does, property by property; ``report.sound`` says whether to train on it.

    `path`: a tokenizer folder, a GGUF file, a template (Jinja) alone, or a policy (``local``, or with a colon).
    `tokenizer`, `api_key`: of a policy that is an engine behind a URL, as in `load_policy`.
    `template`: a file with the template to use instead of the model's own. `stops`: spellings of tokens that end an
    assistant's turn, besides those that the model names; a template alone needs them. `date`: for a template that asks
    for one. `variables`: further template variables; of a template alone, ``bos_token``, ``eos_token``, ``pad_token``
    and ``unk_token`` are the special tokens. `cache`, `progress`: as in `load_policy`. Raises `UsageError` with the
    remedy.
    """
    now = as_moment(date)
    access = Access(api_key=api_key, cache=cache)
    beside = ModelSource(tokenizer=tokenizer, access=access, progress=progress)
    source = _read(path, None if template is None else Path(template), tuple(stops), beside)
    if not source.stops:
        raise UsageError(
            f"{source.name}: nothing says which token ends an assistant's turn; name it (stops, or --stop TOKEN)"
        )
    if "" in source.stops:
        raise UsageError(f"{source.name}: an empty text ends no turn; name a token (stops, or --stop TOKEN)")
    given = dict(variables or {})
    named = {} if source.encoder else {name: _spelling(name, given[name]) for name in _SPECIAL if name in given}
    kept = {name: value for name, value in given.items() if name not in named}
    compiled = compile_template(source.text, {**source.special_tokens, **named}, kept, now)
    return judge(compiled, source.stops, source.name, source.encoder)[1]


def compile_template(
    text: str, special_tokens: Mapping[str, str], variables: Mapping[str, Any], now: datetime | None
) -> ChatTemplate:
    """The compiled template. Raises `ModelError` where it does not compile, and `VariablesUnread`."""
    compiled = ChatTemplate(text, special_tokens, plain_variables(variables), now)
    unread = sorted(variables.keys() - compiled.reads)
    if unread:
        reads = ", ".join(sorted(compiled.reads - special_tokens.keys())) or "none"
        raise VariablesUnread(
            f"the chat template never reads {', '.join(unread)}; the variables that it reads: {reads}",
            frozenset(unread),
        )
    return compiled


def as_moment(date: Date | None) -> datetime | None:
    """The beginning of the day that a template is told. Raises `UsageError` for what is no date."""
    if not isinstance(cast("object", date), Date | None):
        raise UsageError(f"{date!r} is no date; give a datetime.date, e.g. date(2026, 1, 31)")
    return None if date is None else datetime.combine(date, time())


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


def _spelling(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise UsageError(f"{name} is the spelling of a token, not {value!r}")
    return value


def _read(path: Path | str, template: Path | None, stops: tuple[str, ...], beside: ModelSource) -> _Source:
    if spells_policy(path):
        return _of_model(files_for(parse_policy_name(str(path)), beside), template, stops)
    path = Path(path)
    if beside.tokenizer is not None:
        raise UsageError(f"{path} is no engine behind a URL: give no other tokenizer (--tokenizer)")
    if path.is_dir() or path.suffix == ".gguf":
        return _of_model(files_at(path, beside.access.kept), template, stops)
    if template is not None:
        raise UsageError(f"{path} is a template already: give a tokenizer folder or a GGUF file, or no second template")
    return _Source(path.name, read_template(path), stops)


def _of_model(files: ModelFiles, template: Path | None, stops: tuple[str, ...]) -> _Source:
    if is_harmony(files.tokenizer_json):
        raise UsageError(
            f"{files.name} is a gpt-oss model: it renders through its own library (extra harmony), so there is no "
            "template to check"
        )
    text = template_of(files, None if template is None else read_template(template))
    encoder = shared_encoder(files.tokenizer_json)
    spelled = {token: name for name, token in encoder.added.items()}
    known = sorted(spelled[token] for token in files.stop_ids if token in spelled)
    if strange := [stop for stop in stops if stop and stop not in encoder.added]:
        raise UsageError(f"{files.name} has no added token {', '.join(map(repr, strange))} that could end a turn")
    return _Source(files.name, text, tuple(dict.fromkeys((*known, *stops))), files.special_tokens, encoder)
