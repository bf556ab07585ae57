"""Policies by name: the engine and the renderer that fit each other, from one model.

Engines are imported here and nowhere else, each when it is asked for, so a run needs only the extra of the engine that
it uses. A template that has no place for tools gets the explicit tool prompt; any other keeps its own words. A
tokenizer with the markers of gpt-oss gets the harmony renderer, whatever template lies beside it. The ids of a script
are of the tokenizer that lies beside it (``tokenizer.json``), or of the default model where none does.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Protocol, cast

from rollbook.audit import Reencoder
from rollbook.errors import ModelError, UsageError
from rollbook.models import ModelFiles, ProgressCallback, default_cache, load_folder, load_model
from rollbook.models.harmony_ranks import is_harmony
from rollbook.policy import LocalName, Policy, PolicyName, ScriptedName, load_script, parse_policy_name
from rollbook.policy.names import DEFAULT_MODEL, RUNS
from rollbook.render import HERMES_EXAMPLES, ChatRenderer, RendererConfig, TextStream
from rollbook.rollout import LoadedPolicy

__all__ = ["LocalRenderer", "load_policy", "load_renderer", "renderer_for"]

_EXTRA = ("aiohttp", "xllamacpp")
"""Packages of the extra ``local``."""


class LocalRenderer(Reencoder, Protocol):
    """A renderer over a tokenizer of ours: it also gives text for people, and the ids of a text round trip."""

    def stream(self) -> TextStream:
        """Text for people while tokens are still coming."""
        ...


def load_policy(name: str, *, cache: Path | None = None, progress: ProgressCallback | None = None) -> LoadedPolicy:
    """The policy called `name` with its renderer; not started yet.

    `name`: ``local``, ``local:smollm2-135m``, ``local:PATH.gguf`` or ``scripted:FILE``. `cache`: where fetched models
    are kept; None: the user's cache folder. `progress`: told about downloads. Raises `UsageError` with the remedy.
    """
    parsed = parse_policy_name(name)
    # a script that cannot be read is found out before a model is fetched for it
    script = load_script(parsed.path) if isinstance(parsed, ScriptedName) else None
    files = _files(parsed, cache or default_cache(), progress)
    return LoadedPolicy(_embedded(parsed, files) if script is None else script, renderer_for(files, cache))


def load_renderer(name: str, *, cache: Path | None = None, progress: ProgressCallback | None = None) -> LocalRenderer:
    """The renderer of a policy (name as in `load_policy`), without its engine."""
    return renderer_for(_files(parse_policy_name(name), cache or default_cache(), progress), cache)


def renderer_for(files: ModelFiles, cache: Path | None = None) -> LocalRenderer:
    """The renderer of a model's own tokenizer and template.

    `cache`: where the harmony renderer keeps its vocabulary; None: the user's cache folder. Raises `UsageError` where
    an extra is missing.
    """
    if is_harmony(files.tokenizer_json):
        return _harmony(files, cache or default_cache())
    if files.template is None:
        raise ModelError(f"{files.name} has no chat template; give a model that has one")
    config = RendererConfig(
        name=files.name,
        stop_ids=files.stop_ids,
        special_tokens=files.special_tokens,
        tool_prompt=HERMES_EXAMPLES,  # used only where the template has no place for tools
    )
    return ChatRenderer.build(files.tokenizer_json, files.template, config)


def _files(name: PolicyName, cache: Path, progress: ProgressCallback | None) -> ModelFiles:
    match name:
        case LocalName(model):
            return load_model(model, cache, progress)
        case ScriptedName(path) if (path.parent / "tokenizer.json").exists():
            return load_folder(path.parent)
        case ScriptedName():
            return load_model(DEFAULT_MODEL, cache, progress)
        case _:
            raise UsageError(f"policy '{name}': this version does not run such an engine; name {RUNS}")


class _Embedded(Protocol):
    """`rollbook.run.embedded`."""

    def open_embedded(self, name: str, files: ModelFiles) -> Policy: ...


def _embedded(name: PolicyName, files: ModelFiles) -> Policy:
    try:
        module = importlib.import_module("rollbook.run.embedded")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise UsageError(
            f"policy '{name}' needs the embedded engine ({error.name} is missing): run pip install '.[local]' in "
            "Rollbook's checkout"
        ) from error
    return cast("_Embedded", module).open_embedded(str(name), files)


class _Harmony(Protocol):
    """`rollbook.run.harmony`."""

    def open_harmony(self, files: ModelFiles, cache: Path) -> LocalRenderer: ...


def _harmony(files: ModelFiles, cache: Path) -> LocalRenderer:
    try:
        module = importlib.import_module("rollbook.run.harmony")
    except ModuleNotFoundError as error:
        if error.name != "openai_harmony":
            raise
        raise UsageError(
            f"{files.name} is a gpt-oss model, which needs the package openai-harmony: run pip install '.[harmony]' in "
            "Rollbook's checkout"
        ) from error
    return cast("_Harmony", module).open_harmony(files, cache)
