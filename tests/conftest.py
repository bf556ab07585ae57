"""Fixtures for the whole suite: the real model and tokenizers, each fetched once into a cache that git does not see."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings

from rollbook.models import ModelFiles, load_model
from tests.real_tokenizers import qwen3_files as qwen3_files
from tests.real_tokenizers import qwen_tokenizer_json as qwen_tokenizer_json
from tests.render.families import CACHE
from tests.render.harmony_files import gptoss as gptoss
from tests.render.harmony_files import harmony as harmony
from tests.render.harmony_files import harmony_encoding as harmony_encoding

settings.register_profile("rollbook", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("rollbook")  # how fast a machine is, is no property of the code


@pytest.fixture(scope="session")
def smollm2() -> ModelFiles:
    return load_model("smollm2-135m", CACHE)


@pytest.fixture(autouse=True)
def plain_width(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the tests' own surroundings say about a screen (parallel workers set it) is not told to the command line."""
    monkeypatch.delenv("COLUMNS", raising=False)
