"""Seeds follow from their parts alone, and a loaded policy names what it is."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from rollbook.render import ChatRenderer, RendererConfig
from rollbook.rollout import LoadedPolicy, derive_seed
from tests.render.families import family, template, tokenizer_json
from tests.rollout.made import SMOLLM, Engine, says

parts = st.lists(st.integers() | st.text(max_size=8), max_size=4).map(tuple)


@given(parts, parts)
def test_a_seed_follows_from_its_parts_alone(one: tuple[int | str, ...], other: tuple[int | str, ...]) -> None:
    assert derive_seed(*one) == derive_seed(*one)
    assert 0 <= derive_seed(*one) < 2**31
    if "\x1f".join(map(str, one)) != "\x1f".join(map(str, other)):
        assert derive_seed(*one) != derive_seed(*other)


def test_a_seed_is_the_same_on_every_machine() -> None:
    assert [derive_seed(0), derive_seed(0, "task", 1, 0), derive_seed("\ud800")] == [SEED_0, SEED_TASK, SEED_ODD]


SEED_0, SEED_TASK, SEED_ODD = 613549620, 1682503958, 1733810744


def test_a_policy_is_recorded_with_tokenizer_template_and_tool_prompt() -> None:
    record = LoadedPolicy(Engine([says("x")]), SMOLLM.renderer, trainable=False).record()
    info = SMOLLM.renderer.info
    assert (record.name, record.engine, record.trainable) == ("told", "told", False)
    assert (record.tokenizer_hash, record.template_hash) == (info.tokenizer_hash, info.template_hash)
    assert record.tool_prompt == info.tool_prompt is not None
    assert record.template_findings == info.findings


def test_what_was_set_of_the_template_is_recorded() -> None:
    text = template("qwen3")
    config = RendererConfig(name="n", stop_ids=SMOLLM.renderer.info.stop_ids, variables={"enable_thinking": False})
    made = ChatRenderer.build(tokenizer_json(marked=True), text, config)
    record = LoadedPolicy(Engine([says("x")]), made).record()
    assert record.template_settings == made.info.settings == {"variables": {"enable_thinking": False}}
    assert LoadedPolicy(Engine([says("x")]), SMOLLM.renderer).record().template_settings == {}


def test_what_a_trainer_must_know_of_the_template_is_recorded() -> None:
    record = LoadedPolicy(Engine([says("x")]), family("qwen3-marked").renderer).record()
    assert "reasoning=dropped" in record.template_findings


def test_entering_starts_the_engine_and_leaving_frees_it() -> None:
    class Counts(Engine):
        log = ""

        async def start(self) -> None:
            self.log += "start "

        async def close(self) -> None:
            self.log += "close"

    async def scenario() -> str:
        engine = Counts([says("x")])
        async with LoadedPolicy(engine, SMOLLM.renderer) as loaded:
            assert loaded.policy is engine
            assert engine.log == "start "
        return engine.log

    assert asyncio.run(scenario()) == "start close"
