"""Policies by name: what a name brings with it, and what each refusal says."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollbook.errors import ModelError, UsageError
from rollbook.models import load_folder
from rollbook.run import load_policy, load_renderer
from rollbook.run.policies import renderer_for
from tests.render.families import template
from tests.run.run_made import model_folder, script


def test_a_script_speaks_with_the_tokenizer_beside_it(tmp_path: Path) -> None:
    name = script(tmp_path, "It is 8.")
    found = load_policy(name, cache=tmp_path / "never")
    assert found.record().name == name
    assert found.record().tokenizer_hash == load_folder(tmp_path).tokenizer_hash
    assert load_renderer(name, cache=tmp_path / "never").info == found.renderer.info
    assert not (tmp_path / "never").exists()

    async def start() -> None:
        async with found:
            pass

    asyncio.run(start())


@pytest.mark.parametrize(("family", "prompted"), [("smollm2", True), ("qwen3", False)])
def test_the_tool_prompt_stands_in_only_where_the_template_has_no_tools(
    tmp_path: Path, family: str, prompted: bool
) -> None:
    model_folder(tmp_path)
    (tmp_path / "chat_template.jinja").write_text(template(family))
    assert (renderer_for(load_folder(tmp_path)).info.tool_prompt is not None) is prompted


def test_a_model_without_a_template_is_refused(tmp_path: Path) -> None:
    (model_folder(tmp_path) / "chat_template.jinja").unlink()
    with pytest.raises(ModelError, match="no chat template"):
        renderer_for(load_folder(tmp_path))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt", "is not a policy"),
        ("local:nothing", "unknown model 'nothing'"),
        ("local:missing.gguf", "missing.gguf"),
        ("scripted:missing.json", "missing.json"),
        ("vllm:http://127.0.0.1:1", "does not run such an engine; name local, .* or scripted:FILE"),
    ],
)
def test_names_that_bring_nothing_say_what_to_do(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_policy(name, cache=tmp_path)
