"""The renderer of a gpt-oss model's files. Needs the extra ``harmony``, so it is imported when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

from rollbook.errors import ConfigError
from rollbook.models import ModelFiles
from rollbook.models.harmony_ranks import ENCODINGS_VARIABLE, write_ranks
from rollbook.render.harmony import (
    EFFORT,
    IDENTITY,
    Effort,
    HarmonyConfig,
    HarmonyEncoding,
    HarmonyRenderer,
    load_encoding,
)

__all__ = ["open_encoding", "open_harmony"]


def open_harmony(files: ModelFiles, cache: Path, day: date | None, variables: Mapping[str, Any]) -> HarmonyRenderer:
    """The renderer, with the library's vocabulary made from the model's own tokenizer and kept below `cache`.

    `day`: for the system message; None: it has no date. `variables`: ``reasoning_effort`` and ``model_identity``, as
    the model's own template calls them. Raises `ModelError`, and `ConfigError` for any other variable."""
    config = _config(files.name, day, variables)
    encoding = open_encoding(files.tokenizer_json, cache)
    return HarmonyRenderer.build(encoding, files.tokenizer_json, config)


def _config(name: str, day: date | None, variables: Mapping[str, Any]) -> HarmonyConfig:
    config = HarmonyConfig(name=name, start=day)
    for variable, value in variables.items():
        if variable == EFFORT and value in list(Effort):
            config = replace(config, effort=Effort(value))
        elif variable == IDENTITY and isinstance(value, str | None):
            config = replace(config, identity=value)
        else:
            raise ConfigError(
                f"{name} is a gpt-oss model, which has no template variable {variable}={value!r}: there are {EFFORT} "
                f"({', '.join(Effort)}) and {IDENTITY} (a text, or null)"
            )
    return config


def open_encoding(tokenizer_json: bytes, cache: Path) -> HarmonyEncoding:
    """The library's encoding over a model's own tokenizer. Raises `ModelError`."""
    with _vocabulary(write_ranks(tokenizer_json, cache)):
        return load_encoding()


@contextmanager
def _vocabulary(folder: Path) -> Generator[None]:
    """The library has no other way to be told of a folder than its environment variable, which it reads once."""
    before = os.environ.get(ENCODINGS_VARIABLE)
    os.environ[ENCODINGS_VARIABLE] = str(folder)
    try:
        yield
    finally:
        if before is None:
            del os.environ[ENCODINGS_VARIABLE]
        else:
            os.environ[ENCODINGS_VARIABLE] = before
