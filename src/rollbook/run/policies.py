"""Policies by name: the engine and the renderer that fit each other, from one model.

Engines are imported here and nowhere else, each when it is asked for, so a run needs only the extra of the engine
that it uses.
"""

from __future__ import annotations

import importlib
from pathlib import Path

from rollbook.errors import ModelError, UsageError, boundary
from rollbook.models import ModelFiles, ProgressCallback, default_cache, load_model
from rollbook.policy import LocalName, Policy, ScriptedName, load_script, parse_policy_name
from rollbook.render import HERMES_EXAMPLES, ChatRenderer, RendererConfig
from rollbook.rollout import LoadedPolicy

__all__ = ["load_policy", "load_renderer"]

CONTEXT = 4096
"""Tokens of context that a local model gets, or what it was trained for where that is less."""


def load_policy(name: str, *, cache: Path | None = None, progress: ProgressCallback | None = None) -> LoadedPolicy:
    """The policy called `name` (``local``, ``local:smollm2-135m``, ``local:PATH.gguf``) with its renderer; not
    started yet.

    `cache`: where fetched models are kept; None: the user's cache folder. `progress`: told about downloads. Raises
    `UsageError` with the remedy.
    """
    parsed = parse_policy_name(name)
    match parsed:
        case LocalName(model):
            files = load_model(model, cache or default_cache(), progress)
            return LoadedPolicy(_embedded(str(parsed), files), renderer_for(files))
        case ScriptedName(path):
            # A script holds ids only; they are of the default model's vocabulary.
            return LoadedPolicy(load_script(path), load_renderer("local", cache=cache, progress=progress))
        case _:
            raise UsageError(f"policy {name!r}: this version runs 'local' and 'scripted' policies only")


def _embedded(name: str, files: ModelFiles) -> Policy:
    if files.weights is None:
        raise ModelError(f"{name} has no weights; give a GGUF file")
    with boundary("the embedded engine needs the extra 'local': pip install 'rollbook[local]'", UsageError):
        engine = importlib.import_module("rollbook.policy.local")
    config = engine.LocalConfig(
        name=name,
        weights=files.weights,
        stop_ids=files.stop_ids,
        context_length=min(CONTEXT, files.context_length or CONTEXT),
        tokenizer_hash=files.tokenizer_hash,
        template_hash=files.template_hash,
    )
    return engine.LocalPolicy(config)


def load_renderer(name: str, *, cache: Path | None = None, progress: ProgressCallback | None = None) -> ChatRenderer:
    """The renderer of a local model (name as in `load_policy`), without its engine."""
    parsed = parse_policy_name(name)
    if not isinstance(parsed, LocalName):
        raise UsageError(f"policy {name!r}: only local models bring their own tokenizer and template")
    return renderer_for(load_model(parsed.model, cache or default_cache(), progress))


def renderer_for(files: ModelFiles) -> ChatRenderer:
    """The renderer of a model's own tokenizer and template."""
    if files.template is None:
        raise ModelError(f"{files.name} has no chat template; give a model that has one")
    config = RendererConfig(
        name=files.name, stop_ids=files.stop_ids, special_tokens=files.special_tokens, tool_prompt=HERMES_EXAMPLES
    )
    return ChatRenderer.build(files.tokenizer_json, files.template, config)
