"""Control tokens from content, wherever it stands in a conversation."""

from __future__ import annotations

import json

import pytest

from rollbook.render import ChatRenderer, RendererConfig
from rollbook.render.findings import Property, TemplateRefused
from tests.render.families import tokenizer_json

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


def build(text: str, arguments: str = WORDS) -> ChatRenderer:
    data = tokenizer_json(marked=True)
    stops = [each["id"] for each in json.loads(data)["added_tokens"] if each["content"] == "<|im_end|>"]
    written = TEMPLATE.replace("{{ TEXT }}", text).replace("ARGUMENTS", arguments)
    return ChatRenderer.build(data, written, RendererConfig(name="t", stop_ids=frozenset(stops)))


def test_a_template_that_leaves_content_alone_is_safe() -> None:
    finding = build("{{ m.content }}").report.get(Property.CONTROL)
    assert finding is not None
    assert finding.value == "safe"


@pytest.mark.parametrize(
    ("role", "what"),
    [("user", "a message"), ("system", "a system message"), ("assistant", "an assistant's text"), ("tool", "a tool")],
)
def test_content_whose_markers_the_template_writes_itself_is_refused(role: str, what: str) -> None:
    split = SPLIT.replace("SPELLED", "m.content")
    with pytest.raises(TemplateRefused, match=f"^{what}.* that spells control tokens"):
        build(f"{{% if m.role == '{role}' %}}{split}{{% else %}}{{{{ m.content }}}}{{% endif %}}")


def test_arguments_whose_markers_the_template_writes_itself_are_refused() -> None:
    with pytest.raises(TemplateRefused, match=r"^a call that spells control tokens"):
        build("{{ m.content }}", SPLIT.replace("SPELLED", "call.function.arguments.word"))


def test_a_conversation_that_the_template_takes_from_nobody_proves_nothing() -> None:
    refused = "{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}{{ m.content }}"
    finding = build(refused).report.get(Property.CONTROL)
    assert finding is not None
    assert finding.value == "safe"
