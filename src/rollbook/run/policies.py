"""Policies by name: the engine and the renderer that fit each other, from one model.

Engines are imported here and nowhere else, each when it is asked for, so a run needs only the extra of the engine that
it uses. A template that has no place for tools gets the explicit tool prompt; any other keeps its own words. A
tokenizer with the markers of gpt-oss gets the harmony renderer, whatever template lies beside it. The ids of a script
are of the tokenizer that lies beside it, in any form that `load_folder` takes, or of the default model where none does.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date as Date  # noqa: N812 (a parameter is called `date`)
from pathlib import Path
from typing import Any, Protocol, cast

from rollbook.audit import Reencoder
from rollbook.errors import ConfigError, optional
from rollbook.models import ModelFiles, ProgressCallback, default_cache
from rollbook.models.harmony_ranks import is_harmony
from rollbook.policy import (
    Policy,
    PolicyName,
    RemoteName,
    ScriptedName,
    TextName,
    load_script,
    parse_policy_name,
)
from rollbook.render import HERMES_EXAMPLES, NATIVE_TOOLS, ChatRenderer, RendererConfig, TextStream
from rollbook.rollout import LoadedPolicy
from rollbook.rollout.judging import JudgeLoader
from rollbook.run.access import CONNECTIONS, REQUEST_TIMEOUT, Access
from rollbook.run.config import RunConfig
from rollbook.run.model_files import files_at, spells_policy
from rollbook.run.served import ModelSource, files_for
from rollbook.run.templates import as_moment, compile_template, read_template, template_of

__all__ = ["LocalRenderer", "judge_loader", "load_policy", "load_renderer", "policy_of", "renderer_for"]

_EXTRA = ("aiohttp", "xllamacpp")
"""Packages of the extra ``local``."""


class LocalRenderer(Reencoder, Protocol):
    """A renderer over a tokenizer of ours: it also gives text for people, and the ids of a text round trip."""

    def stream(self) -> TextStream:
        """Text for people while tokens are still coming."""
        ...


def load_policy(
    name: str,
    *,
    tokenizer: Path | str | None = None,
    api_key: str | None = None,
    connections: int = CONNECTIONS,
    request_timeout: float = REQUEST_TIMEOUT,
    template: Path | str | None = None,
    date: Date | None = None,
    variables: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> LoadedPolicy:
    """The policy called `name` with its renderer; not started yet.

    `name`: ``local``, ``local:smollm2-135m``, ``local:PATH.gguf``, ``scripted:FILE``, or an engine: ``vllm:URL``,
    ``sglang:URL``, ``llamacpp:URL``, each with ``#MODEL`` where it serves several. ``text:URL#MODEL`` is a text-only
    endpoint for evaluation: it has no renderer, and takes none of what is set of one. `tokenizer`: of an engine's model
    (a tokenizer folder, a GGUF file, or a policy with files such as ``local:smollm2-135m``); None: where the engine
    says that its model lies. `api_key`: sent to the engine, kept nowhere. `connections`: to the engine at
    once. `request_timeout`: seconds that one request to it may take. `template`: a file with the template to use
    instead of the model's own. `date`: for a template that asks for one. `variables`: further template variables, plain
    JSON data. `cache`: where fetched models are kept; None: the user's cache folder. `progress`: told about downloads.
    Raises `UsageError` with the remedy.
    """
    parsed = parse_policy_name(name)
    access = Access(api_key=api_key, connections=connections, request_timeout=request_timeout, cache=cache)
    if isinstance(parsed, TextName):
        if tokenizer is not None or template is not None or date is not None or variables:
            raise ConfigError(f"{name} renders by itself: give no tokenizer and nothing of a template")
        return LoadedPolicy(_remote_module(parsed).open_text(parsed, access), name=name)
    # a file that cannot be read is found out before a model is fetched for it
    script = load_script(parsed.path) if isinstance(parsed, ScriptedName) else None
    text = _text(template)
    files = files_for(parsed, ModelSource(tokenizer=tokenizer, access=access, progress=progress))
    renderer = renderer_for(files, cache, template=text, date=date, variables=variables)
    if script is not None:
        return LoadedPolicy(script, renderer, name=name)
    if isinstance(parsed, RemoteName):
        client = _remote_module(parsed).open_remote(parsed, renderer.info.stop_ids, access)
        return LoadedPolicy(client, renderer, name=name)
    return LoadedPolicy(_embedded(parsed, files), renderer, name=name)


def judge_loader(access: Access) -> JudgeLoader:
    """Loads the policy of a judge by its name, with the connections and the cache of `access`. The run's key stays away
    from it: it is another engine's."""

    def load(name: str) -> LoadedPolicy:
        return load_policy(name, connections=access.connections, cache=access.cache)

    return load


def load_renderer(
    name: str | Path,
    *,
    tokenizer: Path | str | None = None,
    api_key: str | None = None,
    template: Path | str | None = None,
    date: Date | None = None,
    variables: Mapping[str, Any] | None = None,
    cache: Path | None = None,
    progress: ProgressCallback | None = None,
) -> LocalRenderer:
    """The renderer of a policy, without its engine, or of the tokenizer folder or GGUF file at a path.

    `name`: as in `load_policy`, or a path; a path that looks like a policy (``local``, or with a colon) is given as a
    `Path`. The rest as in `load_policy`.
    """
    text, access = _text(template), Access(api_key=api_key, cache=cache)
    if _is_path(name):
        files = files_at(Path(name), access.kept)
    else:
        source = ModelSource(tokenizer=tokenizer, access=access, progress=progress)
        files = files_for(parse_policy_name(str(name)), source)
    return renderer_for(files, cache, template=text, date=date, variables=variables)


def policy_of(
    config: RunConfig, access: Access | None = None, progress: ProgressCallback | None = None
) -> LoadedPolicy:
    """The policy of a run, with the tokenizer, the template and the time of a request that the run asks for. As
    `load_policy`."""
    access = access or Access()
    return load_policy(
        config.policy,
        tokenizer=config.tokenizer,
        api_key=access.api_key,
        connections=access.connections,
        request_timeout=config.request_timeout,
        template=None if config.template is None else Path(config.template),
        date=config.template_date,
        variables=config.template_variables,
        cache=access.cache,
        progress=progress,
    )


def renderer_for(
    files: ModelFiles,
    cache: Path | None = None,
    *,
    template: str | None = None,
    date: Date | None = None,
    variables: Mapping[str, Any] | None = None,
) -> LocalRenderer:
    """The renderer of a model's own tokenizer, and of its own template where `template` gives no other text.

    `cache`: where the harmony renderer keeps its vocabulary; None: the user's cache folder. Raises `UsageError` where
    an extra is missing, or where the model cannot be given what is set.
    """
    now = as_moment(date)
    if is_harmony(files.tokenizer_json):
        if template is not None:
            raise ConfigError(f"{files.name} is a gpt-oss model: its prompts are no template's; give none (--template)")
        return _harmony(files, cache or default_cache(), date, variables or {})
    text = template_of(files, template)
    if variables:
        compile_template(text, files.special_tokens, variables, now)
    config = RendererConfig(
        name=files.name,
        stop_ids=files.stop_ids,
        special_tokens=files.special_tokens,
        variables=variables or {},
        tool_prompt=HERMES_EXAMPLES,  # used only where the template has no place for tools, likewise the next
        native_tool_prompt=NATIVE_TOOLS,
        now=now,
    )
    return ChatRenderer.build(files.tokenizer_json, text, config)


def _text(template: Path | str | None) -> str | None:
    return None if template is None else read_template(Path(template))


def _is_path(name: str | Path) -> bool:
    """True for what no policy is called: it is there, or spelled as a path."""
    path = Path(name)
    there = isinstance(name, Path) or len(path.parts) > 1 or path.suffix == ".gguf" or path.exists()
    return there and not spells_policy(name)


class _Embedded(Protocol):
    """`rollbook.run.embedded`."""

    def open_embedded(self, name: str, files: ModelFiles) -> Policy: ...


def _embedded(name: PolicyName, files: ModelFiles) -> Policy:
    module = optional(
        "rollbook.run.embedded",
        *_EXTRA,
        says=lambda error: (
            f"policy '{name}' needs the embedded engine ({error.name} is missing): run pip install '.[local]' in "
            "Rollbook's checkout"
        ),
    )
    return cast("_Embedded", module).open_embedded(str(name), files)


class _Remote(Protocol):
    """`rollbook.run.remote`."""

    def open_remote(self, name: RemoteName, stop_ids: frozenset[int], access: Access) -> Policy: ...

    def open_text(self, name: TextName, access: Access) -> Policy: ...


def _remote_module(name: RemoteName | TextName) -> _Remote:
    says = f"policy '{name}' needs the package aiohttp: run pip install '.[engines]' in Rollbook's checkout"
    return cast("_Remote", optional("rollbook.run.remote", "aiohttp", says=lambda error: says))


class _Harmony(Protocol):
    """`rollbook.run.harmony`."""

    def open_harmony(
        self, files: ModelFiles, cache: Path, day: Date | None, variables: Mapping[str, Any]
    ) -> LocalRenderer: ...


def _harmony(files: ModelFiles, cache: Path, day: Date | None, variables: Mapping[str, Any]) -> LocalRenderer:
    says = (
        f"{files.name} is a gpt-oss model, which needs the package openai-harmony: run pip install '.[harmony]' in "
        "Rollbook's checkout"
    )
    module = optional("rollbook.run.harmony", "openai_harmony", says=lambda error: says)
    return cast("_Harmony", module).open_harmony(files, cache, day, variables)
