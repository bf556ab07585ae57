"""What a template with its tokenizer is refused for."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.render import ChatRenderer, RendererConfig
from rollbook.render.encode import Encoder
from rollbook.render.findings import Property, TemplateRefused, Verdict
from rollbook.render.judge import judge
from rollbook.render.template import ChatTemplate
from rollbook.render.tracked import scaffold
from tests.render.families import template, tokenizer_json

DATA = tokenizer_json(marked=True)
ENCODER = Encoder(DATA)
STOP = ENCODER.added["<|im_end|>"]


def build(text: str, **more: Any) -> ChatRenderer:
    return ChatRenderer.build(DATA, text, RendererConfig(name="t", stop_ids=frozenset({STOP}), **more))


def test_two_start_tokens_are_refused() -> None:
    begin = {"special_tokens": {"bos_token": "<|endoftext|>"}}
    for count, value in enumerate(("none", "one")):
        start = build("{{ bos_token }}" * count + template("qwen3"), **begin).report.get(Property.BOS)
        assert start is not None
        assert (start.value, start.verdict) == (value, Verdict.SOUND)
    with pytest.raises(TemplateRefused, match="begins with 2 start tokens"):
        build("{{ bos_token }}{{ bos_token }}" + template("qwen3"), **begin)


class Careless(ChatTemplate):
    """A template whose tracking fails: what a user says comes out as the template's own words."""

    def render(self, messages: list[Any], tools: list[Any] | None, *, prompt: bool) -> Any:
        made = super().render(messages, tools, prompt=prompt)
        return scaffold(made.plain) if "<|" in messages[0]["content"] else made


def test_a_template_whose_content_makes_control_tokens_is_refused() -> None:
    _, sound = judge(ChatTemplate(template("qwen3")), ["<|im_end|>"], "t", ENCODER)
    _, careless = judge(Careless(template("qwen3") + "{# careless #}"), ["<|im_end|>"], "t", ENCODER)
    for report, value in ((sound, "safe"), (careless, "from content")):
        control = report.get(Property.CONTROL)
        assert control is not None
        assert (control.value, control.forbids) == (value, value != "safe")
