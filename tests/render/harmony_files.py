"""The tokenizer of gpt-oss (Apache-2.0), the library's encoding over it, and the renderer."""

from __future__ import annotations

from datetime import date

import pytest

from rollbook.render.harmony import HarmonyConfig, HarmonyEncoding, HarmonyRenderer
from rollbook.run.harmony import open_encoding
from tests.real_tokenizers import NotFetched, tokenizer


@pytest.fixture(scope="session")
def gptoss() -> bytes:
    """``tokenizer.json`` of gpt-oss."""
    try:
        return tokenizer("gptoss").tokenizer_json
    except NotFetched as why:
        pytest.fail(str(why), pytrace=False)


@pytest.fixture(scope="session")
def harmony_encoding(gptoss: bytes, tmp_path_factory: pytest.TempPathFactory) -> HarmonyEncoding:
    """The library's own encoding, the yardstick."""
    return open_encoding(gptoss, tmp_path_factory.mktemp("harmony"))


@pytest.fixture(scope="session")
def harmony(gptoss: bytes, harmony_encoding: HarmonyEncoding) -> HarmonyRenderer:
    """The renderer of gpt-oss, with the date 2025-06-28."""
    return HarmonyRenderer.build(harmony_encoding, gptoss, HarmonyConfig(name="gpt-oss", start=date(2025, 6, 28)))
