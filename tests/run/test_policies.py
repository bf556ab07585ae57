"""Policies by name: what a name brings with it, and what each refusal says."""

from __future__ import annotations

import asyncio
import hashlib
import json
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from rollbook.errors import ModelError, UsageError
from rollbook.models import load_folder
from rollbook.run import Access, RunConfig, load_policy, load_renderer, open_run, policy_of, run
from rollbook.run.policies import LocalRenderer, renderer_for
from rollbook.trace import Message, Role
from tests.models.gguf_samples import write
from tests.models.samples import tekken_file
from tests.render.families import template, tokenizer_json
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


DAY = date(2026, 1, 31)


def dated(folder: Path) -> Path:
    """A template that asks for the day and tells a variable."""
    path = folder / "dated.jinja"
    path.write_text("{{ strftime_now('%d %b %Y') }}{{ place }}" + template("smollm2"))
    return path


def beginning(renderer: LocalRenderer) -> str:
    """How a conversation starts."""
    rendering = renderer.open([Message(role=Role.USER, content="Hi")], ())
    return renderer.decode(np.concatenate([each.token_ids for each in rendering.messages]))


def test_template_day_and_variables_reach_the_renderer_and_the_record(tmp_path: Path) -> None:
    name, path = script(tmp_path, "It is 8."), dated(tmp_path)
    found = load_policy(name, template=path, date=DAY, variables={"place": " Rome "}, cache=tmp_path)
    alone = load_renderer(name, template=path, date=DAY, variables={"place": " Rome "}, cache=tmp_path)
    assert beginning(alone).startswith("31 Jan 2026 Rome <|im_start|>")
    assert alone.info == found.renderer.info
    record = found.record()
    assert record.template_hash == hashlib.sha256(path.read_bytes()).hexdigest() == alone.info.template_hash
    assert record.template_settings == {"date": "2026-01-31", "variables": {"place": " Rome "}}
    assert load_policy(name, cache=tmp_path).record().template_settings == {}
    config = RunConfig(
        environment="x", policy=name, template=str(path), template_date=DAY, template_variables={"place": " Rome "}
    )
    assert policy_of(config, Access(cache=tmp_path)).record() == record


def test_a_variable_that_the_template_never_reads_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="never reads plac; the variables that it reads: place"):
        load_policy(script(tmp_path, "x"), template=dated(tmp_path), date=DAY, variables={"plac": "Rome"})


def test_a_template_may_be_text_and_a_day_must_be_one(tmp_path: Path) -> None:
    name, path = script(tmp_path, "x"), dated(tmp_path)
    for load in (load_policy, load_renderer):
        load(name, template=str(path), date=DAY)
        wrong: Any = "2026-01-31"
        with pytest.raises(UsageError, match="is no date"):
            load(name, template=path, date=wrong)


def test_a_dated_template_without_a_day_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="give a fixed one"):
        load_policy(script(tmp_path, "x"), template=dated(tmp_path), cache=tmp_path)


def test_a_template_that_cannot_be_read_is_found_out_before_a_model_is_fetched(tmp_path: Path) -> None:
    for load in (load_policy, load_renderer):
        with pytest.raises(ModelError, match=r"cannot read .*none\.jinja"):
            load("local", template=tmp_path / "none.jinja", cache=tmp_path / "never")
    assert not (tmp_path / "never").exists()


def test_a_model_without_a_template_is_given_one(tmp_path: Path) -> None:
    text = (model_folder(tmp_path) / "chat_template.jinja").rename(tmp_path / "mine.jinja")
    assert load_renderer(tmp_path, template=text).info.template_hash == hashlib.sha256(text.read_bytes()).hexdigest()


def test_a_renderer_by_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = model_folder(tmp_path / "local")
    info = load_renderer(folder).info
    monkeypatch.chdir(tmp_path)
    for name in (str(folder), "./local", Path("local"), folder / "tokenizer.json"):
        assert load_renderer(name).info.tokenizer_hash == info.tokenizer_hash
    folder.rename(tmp_path / "mine")
    assert load_renderer("mine").info.tokenizer_hash == info.tokenizer_hash
    with pytest.raises(ModelError, match="is no tokenizer folder"):
        load_renderer("./nowhere/at/all")
    with pytest.raises(UsageError, match="is not a policy"):
        load_renderer("nowhere")


def test_a_renderer_of_a_gguf_file_by_path(tmp_path: Path) -> None:
    parts = json.loads(tokenizer_json(marked=False))
    added = [entry["content"] for entry in parts["added_tokens"]]
    write(
        tmp_path / "m.gguf",
        tokens=[*sorted(parts["model"]["vocab"], key=parts["model"]["vocab"].__getitem__), *added],
        types=[1] * len(parts["model"]["vocab"]) + [3] * len(added),
        merges=[" ".join(pair) for pair in parts["model"]["merges"]],
        template=template("smollm2"),
        eos=len(parts["model"]["vocab"]) + added.index("<|im_end|>"),
        bos=None,
    )
    found = load_renderer(tmp_path / "m.gguf", cache=tmp_path / "cache")
    assert beginning(found).endswith("<|im_start|>user\nHi<|im_end|>\n")
    assert load_renderer(f"local:{tmp_path / 'm.gguf'}", cache=tmp_path / "cache").info.tokenizer_hash == (
        found.info.tokenizer_hash
    )
    dated_ = load_renderer(str(tmp_path / "m.gguf"), template=dated(tmp_path), date=DAY, cache=tmp_path / "cache")
    assert beginning(dated_).startswith("31 Jan 2026<|im_start|>")


def test_a_script_speaks_with_any_form_of_tokenizer(tmp_path: Path) -> None:
    (tmp_path / "script.json").write_text('{"replies": []}')
    (tmp_path / "tekken.json").write_bytes(tekken_file(3000))
    (tmp_path / "chat_template.jinja").write_text(
        "{{ bos_token }}{% for m in messages %}{% if m.role == 'assistant' %}{{ m.content + eos_token }}{% else %}"
        "{{ '[INST]' + m.content + '[/INST]' }}{% endif %}{% endfor %}"
    )
    found = load_renderer(f"scripted:{tmp_path / 'script.json'}", cache=tmp_path / "never")
    assert found.info.tokenizer_hash == load_folder(tmp_path).tokenizer_hash
    assert not (tmp_path / "never").exists()


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("gpt", "is not a policy"),
        ("local:nothing", "unknown model 'nothing'"),
        ("local:missing.gguf", "missing.gguf"),
        ("scripted:missing.json", "missing.json"),
        ("vllm:http://127.0.0.1:1", "cannot be reached .*: see that it runs"),
    ],
)
def test_names_that_bring_nothing_say_what_to_do(tmp_path: Path, name: str, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        load_policy(name, cache=tmp_path)


def test_a_run_uses_the_template_that_it_was_asked_for(tmp_path: Path) -> None:
    name, path = script(tmp_path / "m", "It is 8."), dated(tmp_path)
    config = RunConfig(environment="test-double", policy=name, tasks=1, group=1, template=str(path), template_date=DAY)
    asyncio.run(run(config, tmp_path / "run"))
    (trace,) = open_run(tmp_path / "run").traces()
    assert trace.head.policies[0] == policy_of(config).record()
    assert trace.head.policies[0].template_settings == {"date": "2026-01-31"}
