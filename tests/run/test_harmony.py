"""gpt-oss by name: the renderer that is chosen, the library's environment variable, and a missing extra."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import ConfigError, ModelError
from rollbook.models import load_folder
from rollbook.models.harmony_ranks import ENCODINGS_VARIABLE
from rollbook.render.harmony import HarmonyEncoding, HarmonyRenderer, load_encoding
from rollbook.run import load_renderer
from rollbook.run.harmony import open_encoding
from rollbook.trace import Message, Role
from tests.models.test_harmony_ranks import MARKERS, small
from tests.run.run_made import script


@pytest.fixture
def folder(gptoss: bytes, tmp_path: Path) -> Path:
    """A script's folder with the tokenizer of gpt-oss, which has no template."""
    name = script(tmp_path, "It is 8.")
    (tmp_path / "tokenizer.json").write_bytes(gptoss)
    (tmp_path / "tokenizer_config.json").write_text('{"eos_token": "<|return|>"}')
    (tmp_path / "chat_template.jinja").unlink()
    assert name == f"scripted:{tmp_path / 'script.json'}"
    return tmp_path


def test_a_policy_of_gpt_oss_speaks_harmony(folder: Path) -> None:
    before = os.environ.get(ENCODINGS_VARIABLE)
    found = load_renderer(f"scripted:{folder / 'script.json'}", cache=folder / "cache")
    assert isinstance(found, HarmonyRenderer)
    assert found.info.name == str(folder)
    assert found.info.tokenizer_hash == load_folder(folder).tokenizer_hash
    assert os.environ.get(ENCODINGS_VARIABLE) == before
    assert len(list((folder / "cache").rglob("*.tiktoken"))) == 1


def test_day_effort_and_identity_are_told(folder: Path) -> None:
    set_ = {"reasoning_effort": "high", "model_identity": "You are a clerk."}
    found = load_renderer(folder, date=date(2026, 1, 31), variables=set_)
    (first,) = found.open([Message(role=Role.USER, content="Hi")], ()).messages
    told = found.decode(first.token_ids)
    assert "You are a clerk.\n" in told
    assert "Current date: 2026-01-31\n" in told
    assert "Reasoning: high\n" in told
    assert found.info.settings == {"date": "2026-01-31", "variables": set_}
    assert "date" not in load_renderer(folder).info.settings


@pytest.mark.parametrize(
    "variables",
    [{"enable_thinking": False}, {"reasoning_effort": "most"}, {"reasoning_effort": 1}, {"model_identity": 1}],
)
def test_what_gpt_oss_cannot_be_told_is_refused(tmp_path: Path, variables: dict[str, Any]) -> None:
    (tmp_path / "tokenizer.json").write_bytes(small(MARKERS, {"a": 0}))
    with pytest.raises(ConfigError, match=r"no template variable .*: there are reasoning_effort \(low, medium, high\)"):
        load_renderer(tmp_path, variables=variables)
    mine = tmp_path / "mine.jinja"
    mine.write_text("x")
    with pytest.raises(ConfigError, match="its prompts are no template's"):
        load_renderer(tmp_path, template=mine)


def test_the_users_own_variable_comes_back(gptoss: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(ENCODINGS_VARIABLE, str(tmp_path / "theirs"))
    assert isinstance(open_encoding(gptoss, tmp_path), HarmonyEncoding)
    assert os.environ[ENCODINGS_VARIABLE] == str(tmp_path / "theirs")
    with pytest.raises(ModelError, match="openai-harmony cannot load its vocabulary"):
        load_encoding()


def test_another_vocabulary_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="another vocabulary"):
        open_encoding(small(MARKERS, {"a": 0}), tmp_path)
    assert ENCODINGS_VARIABLE not in os.environ or not os.environ[ENCODINGS_VARIABLE].startswith(str(tmp_path))


_WITHOUT = """
import sys
from pathlib import Path
sys.modules["openai_harmony"] = None
from rollbook.errors import UsageError
from rollbook.models import load_folder
from rollbook.run.policies import renderer_for
try:
    renderer_for(load_folder(Path(sys.argv[1])))
except UsageError as error:
    print(error)
"""


def test_without_the_extra_the_remedy_is_told(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.json").write_bytes(small(MARKERS, {"a": 0}))
    done = subprocess.run([sys.executable, "-c", _WITHOUT, tmp_path], capture_output=True, text=True, check=True)
    assert "needs the package openai-harmony: run pip install '.[harmony]'" in done.stdout
