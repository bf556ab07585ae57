"""Templates that can be rendered step by step, and those that cannot."""

from __future__ import annotations

import pytest

from rollbook.errors import ModelError
from rollbook.render.probe import Finding, probe
from rollbook.render.template import ChatTemplate
from tests.render.families import template

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
STOPS = ("<|im_end|>",)


def found(text: str) -> Finding:
    return probe(ChatTemplate(text), STOPS)


def test_the_stock_templates() -> None:
    small, large = found(template("smollm2")), found(template("qwen3"))
    assert (small.close, large.close) == ("<|im_end|>", "<|im_end|>")
    assert (small.renders_tools, large.renders_tools) == (False, True)
    assert (small.renders_calls, large.renders_calls) == (False, True)
    assert (small.tools_each_time, large.tools_each_time) == (False, False)
    assert (small.keeps_prompt, large.keeps_prompt) == (True, True)


def test_a_generation_prompt_that_history_does_not_show() -> None:
    finding = found(TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}")
    assert not finding.keeps_prompt


def test_tools_that_later_messages_need() -> None:
    finding = found(
        "{% if tools %}[{{ tools | tojson }}]{% endif %}"
        + TURNS.replace("\n{{ m.content", "\n{% if tools %}T{% endif %}{{ m.content")
        + PROMPT
    )
    assert finding.renders_tools
    assert finding.tools_each_time


NOT_STEP_BY_STEP = {
    "numbers its turns": TURNS.replace("{{ m.role }}", "{{ m.role }}{{ loop.index }}"),
    "tells the number of messages": "{{ messages | length }}" + TURNS,
    "shortens old text": TURNS.replace(
        "{{ m.content }}", "{{ m.content if loop.index > messages | length - 2 else m.content[:4] }}"
    ),
    "marks the last message": TURNS.replace("{{ m.content }}", "{{ m.content }}{% if loop.last %}!{% endif %}"),
    "begins each prompt anew": "{{ messages[-1].content }}" + TURNS,
    "tools before the last user": TURNS.replace(
        "<|im_start|>", "{% if tools and loop.last %}[TOOLS]{% endif %}<|im_start|>"
    ),
}


@pytest.mark.parametrize("name", NOT_STEP_BY_STEP)
def test_what_depends_on_the_rest_is_refused(name: str) -> None:
    with pytest.raises(
        ModelError, match=r"cannot be rendered step by step: .* alone '.*', in the whole '.*' \(character \d+\)"
    ):
        found(NOT_STEP_BY_STEP[name] + PROMPT)


def test_a_template_without_an_end_of_turn_is_refused() -> None:
    with pytest.raises(ModelError, match=r"does not end an assistant's turn with any of <\|im_end\|>"):
        found(TURNS.replace("<|im_end|>", "<end>") + PROMPT)


def test_an_end_of_turn_that_content_spells_does_not_count() -> None:
    with pytest.raises(ModelError, match="does not end an assistant's turn"):
        found("{% for m in messages %}{{ m.role }}: {{ m.content }}{{ '<|im_' ~ (1 | string) }}{% endfor %}" + PROMPT)


def test_a_template_that_rewrites_text_is_refused() -> None:
    with pytest.raises(ModelError, match="does not write out an assistant's text"):
        found(TURNS.replace("{{ m.content }}", "{{ '%s!' % m.content }}") + PROMPT)


def test_a_template_whose_tracked_text_would_differ_is_refused() -> None:
    with pytest.raises(ModelError, match="does not render the same with its text tracked"):
        found(TURNS.replace("{{ m.content }}", "{{ ('<b>' + (m.role | safe)) + m.content }}") + PROMPT)


def test_conversations_that_a_template_refuses_are_passed_over() -> None:
    strict = "{% for m in messages if m.role not in ('user', 'assistant') %}{{ raise_exception('no') }}{% endfor %}"
    assert found(strict + TURNS + PROMPT).close == "<|im_end|>"
    with pytest.raises(ModelError, match="refuses the conversation: TemplateError: never"):
        found("{{ raise_exception('never') }}")
