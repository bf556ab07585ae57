"""Renderers that the cases share."""

from __future__ import annotations

import json

import pytest

from rollbook.render import ChatRenderer, RendererConfig
from tests.cases.case import bytes_renderer
from tests.real_tokenizers import TokenizerFiles


@pytest.fixture(scope="session")
def qwen(qwen3_files: TokenizerFiles) -> ChatRenderer:
    """Tokenizer and template of Qwen3; its turns end with 151645 or 151643."""
    config = RendererConfig(name="qwen3", stop_ids=frozenset({151645, 151643}))
    template: str = json.loads(qwen3_files.config_json)["chat_template"]
    return ChatRenderer.build(qwen3_files.tokenizer_json, template, config)


@pytest.fixture(scope="session")
def one_token_a_byte() -> ChatRenderer:
    return bytes_renderer()
