"""What a template with its tokenizer is refused for: start tokens, and control tokens from content."""

from __future__ import annotations

import json
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


TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ TEXT }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function.name }} ARGUMENTS</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
WORDS = "{{ call.function.arguments.word }}"
SPLIT = (
    "{% for part in SPELLED.split('</tool_response>') %}{{ part }}"
    "{% if not loop.last %}</tool_response>{% endif %}{% endfor %}"
)
"""Writes as its own words what it took out of the content."""


def build_written(text: str, arguments: str = WORDS) -> ChatRenderer:
    data = tokenizer_json(marked=True)
    stops = [each["id"] for each in json.loads(data)["added_tokens"] if each["content"] == "<|im_end|>"]
    written = TEMPLATE.replace("{{ TEXT }}", text).replace("ARGUMENTS", arguments)
    return ChatRenderer.build(data, written, RendererConfig(name="t", stop_ids=frozenset(stops)))


def test_a_template_that_leaves_content_alone_is_safe() -> None:
    finding = build_written("{{ m.content }}").report.get(Property.CONTROL)
    assert finding is not None
    assert finding.value == "safe"


@pytest.mark.parametrize(
    ("role", "what"),
    [("user", "a message"), ("system", "a system message"), ("assistant", "an assistant's text"), ("tool", "a tool")],
)
def test_content_whose_markers_the_template_writes_itself_is_refused(role: str, what: str) -> None:
    split = SPLIT.replace("SPELLED", "m.content")
    with pytest.raises(TemplateRefused, match=f"^{what}.* that spells control tokens"):
        build_written(f"{{% if m.role == '{role}' %}}{split}{{% else %}}{{{{ m.content }}}}{{% endif %}}")


def test_arguments_whose_markers_the_template_writes_itself_are_refused() -> None:
    with pytest.raises(TemplateRefused, match=r"^a call that spells control tokens"):
        build_written("{{ m.content }}", SPLIT.replace("SPELLED", "call.function.arguments.word"))


def test_a_conversation_that_the_template_takes_from_nobody_proves_nothing() -> None:
    refused = "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}"
    finding = build_written(refused).report.get(Property.CONTROL)
    assert finding is not None
    assert finding.value == "safe"
