"""The one grammar of policy names, read into tagged values; nothing is opened or connected here.

local | local:MODEL | local:PATH.gguf | vllm:URL | sglang:URL | llamacpp:URL | text:URL#MODEL | scripted:FILE

Where an engine serves several models, ``#MODEL`` behind its URL says which one.
"""

from __future__ import annotations

from difflib import get_close_matches
from enum import StrEnum
from pathlib import Path

import msgspec

from rollbook.errors import UsageError
from rollbook.policy.address import redacted, url_problem

__all__ = ["EngineKind", "LocalName", "PolicyName", "RemoteName", "ScriptedName", "TextName", "parse_policy_name"]

DEFAULT_MODEL = "smollm2-135m"
RUNS = (
    "local, local:MODEL, local:PATH.gguf, vllm:URL, sglang:URL, llamacpp:URL, text:URL#MODEL (for evaluation) or "
    "scripted:FILE"
)
"""The whole grammar, as an error offers it."""


class EngineKind(StrEnum):
    """A server that takes and returns token ids."""

    VLLM = "vllm"
    SGLANG = "sglang"
    LLAMACPP = "llamacpp"


class LocalName(msgspec.Struct, frozen=True, tag="local"):
    """The embedded engine."""

    model: str
    """A model's name, or the path of a GGUF file."""

    def __str__(self) -> str:
        return f"local:{self.model}"


class RemoteName(msgspec.Struct, frozen=True, tag="remote"):
    """An engine behind a URL."""

    engine: EngineKind
    url: str
    model: str | None = None
    """The served model's name; None: the only one that is served."""

    def __str__(self) -> str:
        return f"{self.engine}:{self.url}" if self.model is None else f"{self.engine}:{self.url}#{self.model}"


class TextName(msgspec.Struct, frozen=True, tag="text"):
    """A text-only endpoint: for evaluation, without token ids."""

    url: str
    model: str

    def __str__(self) -> str:
        return f"text:{self.url}#{self.model}"


class ScriptedName(msgspec.Struct, frozen=True, tag="scripted"):
    """Replies out of a file."""

    path: Path

    def __str__(self) -> str:
        return f"scripted:{self.path}"


_ENGINES = {engine.value: engine for engine in EngineKind}
_KINDS = ("local", *_ENGINES, "text", "scripted")

PolicyName = LocalName | RemoteName | TextName | ScriptedName


def parse_policy_name(text: str) -> PolicyName:
    """Read a policy's name. Raises `UsageError` that shows what runs; ``str()`` of the result is the full name."""
    head, colon, rest = text.partition(":")
    shown = redacted(text)
    if text == "local":
        return LocalName(DEFAULT_MODEL)
    if not colon or not rest:
        raise UsageError(f"{shown!r} is not a policy{_hint(head)}: name it {RUNS}")
    if head == "local":
        return LocalName(rest)
    if head == "scripted":
        return ScriptedName(Path(rest))
    if head == "text":
        url, _, model = rest.partition("#")
        if not model:
            raise UsageError(f"{shown!r} names no model: write text:URL#MODEL")
        return TextName(_url(shown, url), model)
    if engine := _ENGINES.get(head):
        url, mark, model = rest.partition("#")
        if mark and not model:
            raise UsageError(f"{shown!r} names no model behind its #: write {head}:URL#MODEL, or {head}:URL alone")
        return RemoteName(engine, _url(shown, url), model or None)
    raise UsageError(f"{shown!r}: unknown kind of policy {head!r}{_hint(head)}: name it {RUNS}")


def _hint(kind: str) -> str:
    close = get_close_matches(kind, _KINDS, n=1)
    return f" (did you mean {close[0]!r}?)" if close and close[0] != kind else ""


def _url(shown: str, url: str) -> str:
    if problem := url_problem(url):
        raise UsageError(f"{shown!r}: {redacted(url)!r} {problem}")
    return url.rstrip("/")
