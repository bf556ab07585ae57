"""The renderer of a gpt-oss model's files. Needs the extra ``harmony``, so it is imported when it is asked for."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from rollbook.models import ModelFiles
from rollbook.models.harmony_ranks import ENCODINGS_VARIABLE, write_ranks
from rollbook.render.harmony import HarmonyConfig, HarmonyEncoding, HarmonyRenderer, load_encoding

__all__ = ["open_encoding", "open_harmony"]


def open_harmony(files: ModelFiles, cache: Path) -> HarmonyRenderer:
    """The renderer, with the library's vocabulary made from the model's own tokenizer and kept below `cache`. The
    system message has no date. Raises `ModelError`."""
    encoding = open_encoding(files.tokenizer_json, cache)
    return HarmonyRenderer.build(encoding, files.tokenizer_json, HarmonyConfig(name=files.name))


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
