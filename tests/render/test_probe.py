"""What a probe sees of a template, what it makes of it, and which templates it refuses."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from rollbook.errors import ModelError
from rollbook.render.findings import Property, TemplateFinding, TemplateReport, Verdict
from rollbook.render.increments import BaseCalls
from rollbook.render.probe import Facts, probe
from rollbook.render.properties import findings_of
from rollbook.render.template import ChatTemplate
from tests.render.families import template

TURNS = "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
PROMPT = "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
STOPS = ("<|im_end|>",)


TOOLS = "{% if tools %}[{{ tools | tojson }}]{% endif %}"
CALLED = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for call in m.tool_calls or [] %}<tool_call>{{ call.function | tojson }}</tool_call>{% endfor %}"
    "<|im_end|>\n{% endfor %}"
)


def found(text: str, *stops: str) -> Facts:
    return probe(ChatTemplate(text), stops or STOPS).facts


def report(text: str, *stops: str) -> TemplateReport:
    return TemplateReport("t", "", tuple(findings_of(probe(ChatTemplate(text), stops or STOPS))))


def finding(text: str, asked: Property, *stops: str) -> TemplateFinding:
    got = report(text, *stops).get(asked)
    assert got is not None
    return got


def test_the_stock_templates() -> None:
    small, large = found(template("smollm2")), found(template("qwen3"))
    assert (small.close, large.close) == ("<|im_end|>", "<|im_end|>")
    assert (small.renders_tools, large.renders_tools) == (False, True)
    assert (small.renders_calls, large.renders_calls) == (False, True)
    assert (small.tools_each_time, large.tools_each_time) == (False, False)
    assert (small.keeps_prompt, large.keeps_prompt) == (True, True)
    assert report(template("qwen3")).labels == ("append_only=no", "reasoning=dropped")
    assert report(template("qwen3")).sound
    assert report(template("smollm2")).labels == ("tools=not rendered",)
    assert "load_renderer then use the one that is shipped" in finding(template("smollm2"), Property.TOOLS).meaning
    assert not report(template("smollm2")).sound


def test_results_are_kept_by_what_the_template_was_given() -> None:
    text = TURNS + PROMPT
    first = probe(ChatTemplate(text, {"bos_token": "<s>"}), STOPS)
    assert probe(ChatTemplate(text, {"bos_token": "<s>"}), STOPS) is first
    assert probe(ChatTemplate(text, {"bos_token": "<b>"}), STOPS) is not first
    assert probe(ChatTemplate(text, {"bos_token": "<s>"}, {"thinking": True}), STOPS) is not first
    assert probe(ChatTemplate(text, {"bos_token": "<s>"}), (*STOPS, "<|end|>")) is not first


def test_a_generation_prompt_that_history_does_not_show() -> None:
    text = TURNS + "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
    assert not found(text).keeps_prompt
    prompt = finding(text, Property.PROMPT)
    assert (prompt.value, prompt.verdict, prompt.example) == (
        "opens reasoning",
        Verdict.DIFFERS,
        "<|im_start|>assistant\n<think>\n",
    )


def test_tools_that_later_messages_need() -> None:
    facts = found(TOOLS + TURNS.replace("\n{{ m.content", "\n{% if tools %}T{% endif %}{{ m.content") + PROMPT)
    assert facts.renders_tools
    assert facts.tools_each_time


def test_tools_that_move_are_named() -> None:
    text = TURNS.replace("<|im_start|>", "{% if tools and loop.last %}[TOOLS]{% endif %}<|im_start|>") + PROMPT
    assert found(text).tools_each_time
    assert finding(text, Property.TOOLS).value == "move"
    assert finding(text, Property.APPEND_ONLY).verdict is Verdict.DIFFERS


def test_tools_that_the_template_fails_on() -> None:
    text = "{% if tools %}{{ raise_exception('no tools') }}{% endif %}" + TURNS + PROMPT
    assert not found(text).renders_tools
    tools = finding(text, Property.TOOLS)
    assert (tools.value, tools.verdict) == ("refused", Verdict.UNSOUND)
    assert "no tools" in tools.meaning


def test_a_turn_that_the_next_role_ends() -> None:
    text = "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}{% endfor %}"
    text += "{% if add_generation_prompt %}<|assistant|>{% endif %}"
    marked = text.replace("<|{{ m.role }}|>", "{{ '<|' + m.role + '|>' }}")
    assert found(marked, "<|user|>", "<|tool|>").close is None
    assert finding(marked, Property.STOP, "<|user|>", "<|tool|>").value == "next role"


def test_a_template_that_forgets_earlier_rounds_of_calls() -> None:
    """DeepSeek V3: only the first round of results gets its opening marker."""
    text = (
        "{% set ns = namespace(first=true) %}"
        + CALLED.replace(
            "{{ m.content }}",
            "{% if m.role == 'tool' and ns.first %}[RESULTS]{% set ns.first = false %}{% endif %}{{ m.content }}",
        )
        + PROMPT
    )
    bridge = finding(text, Property.BRIDGE)
    assert (bridge.value, bridge.verdict, bridge.forbids) == ("as in the first round", Verdict.DIFFERS, False)


def test_a_system_message_that_moves() -> None:
    """Mistral: it stands in the last user message."""
    text = (
        "{% for m in messages if m.role != 'system' %}<|im_start|>{{ m.role }}\n"
        "{% if loop.last and messages[0].role == 'system' %}{{ messages[0].content }}\n\n{% endif %}"
        "{{ m.content }}<|im_end|>\n{% endfor %}" + PROMPT
    )
    assert finding(text, Property.SYSTEM).value == "moves"
    bridge = finding(text, Property.BRIDGE)
    assert (bridge.value, bridge.forbids) == ("without the system message", False)


def test_arguments_as_text_and_calls_without_text() -> None:
    """DeepSeek: arguments are concatenated, and an empty text beside calls would make a turn of its own."""
    text = CALLED.replace("{{ call.function | tojson }}", "{{ call.function.name + call.function.arguments }}") + PROMPT
    facts = found(text)
    assert facts.shape.arguments_as_text
    assert facts.renders_calls
    assert finding(text, Property.ARGUMENTS).value == "text"
    late = CALLED.replace("<|im_end|>", "{% if m.tool_calls and m.content is not none %}!{% endif %}<|im_end|>")
    strict = late.replace(
        "{% for m", "{% for m in messages if m.content == '' %}{{ raise_exception('empty') }}{% endfor %}{% for m"
    )
    assert found(strict + PROMPT).shape.silent_calls


def test_one_call_at_a_time() -> None:
    """Llama 3: parallel calls are refused, and a call takes the place of the text."""
    text = CALLED.replace("{{ m.content }}", "{% if not m.tool_calls %}{{ m.content }}{% endif %}")
    text = text.replace(
        "{% for call",
        "{% if m.tool_calls and m.tool_calls | length > 1 %}{{ raise_exception('one') }}{% endif %}{% for call",
    )
    assert found(text + PROMPT).shape.base_calls is BaseCalls.ONE
    shapes = finding(text + PROMPT, Property.SHAPES)
    assert shapes.value == "some refused"
    assert "parallel calls" in shapes.meaning


def test_the_reason_of_several_shapes_is_said_once() -> None:
    strict = (
        "{% for m in messages %}{% if loop.previtem and m.role == 'user' and loop.previtem.role in ['user', 'tool'] %}"
        "{{ raise_exception('roles alternate') }}{% endif %}{% endfor %}"
    )
    shapes = finding(strict + TURNS + PROMPT, Property.SHAPES)
    assert "two user messages in a row, " in shapes.meaning
    assert shapes.example.count("roles alternate") == 1


def test_default_text_dates_and_trimmed_content() -> None:
    text = (
        "{% if messages[0].role != 'system' %}<|im_start|>system\nBe good.<|im_end|>\n{% endif %}"
        + TURNS.replace("{{ m.content }}", "{{ m.content | trim }}")
        + PROMPT
    )
    assert finding(text, Property.SYSTEM).value == "default text"
    assert "Be good." in finding(text, Property.SYSTEM).example
    assert finding(text, Property.CONTENT).value == "trimmed"
    dated = "{{ strftime_now('%d %b') }}" + TURNS + PROMPT
    assert finding(dated, Property.DATE).forbids
    given = probe(ChatTemplate(dated, now=datetime(2026, 1, 31, tzinfo=UTC)), STOPS)
    assert next(each for each in findings_of(given) if each.about is Property.DATE).value == "2026-01-31"


def test_what_happens_to_reasoning() -> None:
    kept = TURNS.replace("{{ m.content", "{{ m.reasoning_content or '' }}{{ m.content")
    assert finding(kept + PROMPT, Property.REASONING).value == "kept"
    assert finding(TURNS + PROMPT, Property.REASONING).value == "not written"


NOT_STEP_BY_STEP = {
    "numbers its turns": TURNS.replace("{{ m.role }}", "{{ m.role }}{{ loop.index }}"),
    "tells who began": TURNS.replace("{{ m.content }}", "{{ m.content }}{{ messages[0].content | length }}"),
    "measures the system message": TURNS.replace(
        "{{ m.content }}", "{{ m.content }}{{ messages[0].content | length if messages[0].role == 'system' }}"
    ),
    "counts words": TURNS.replace(
        "<|im_start|>", "{{ messages | map(attribute='content') | join | length }}<|im_start|>"
    ),
}


@pytest.mark.parametrize("name", NOT_STEP_BY_STEP)
def test_what_depends_on_the_rest_is_refused(name: str) -> None:
    bridge = finding(NOT_STEP_BY_STEP[name] + PROMPT, Property.BRIDGE)
    assert bridge.forbids
    assert bridge.verdict is Verdict.UNSOUND
    assert "cannot be rendered step by step" in bridge.meaning


REWRITES = {
    "tells the number of messages": "{{ messages | length }}" + TURNS,
    "shortens old text": TURNS.replace(
        "{{ m.content }}", "{{ m.content if loop.index > messages | length - 2 else m.content[:4] }}"
    ),
    "marks the last message": TURNS.replace("{{ m.content }}", "{{ m.content }}{% if loop.last %}!{% endif %}"),
    "begins each prompt anew": "{{ messages[-1].content }}" + TURNS,
}


@pytest.mark.parametrize("name", REWRITES)
def test_what_rewrites_history_has_a_bridge_and_says_so(name: str) -> None:
    text = REWRITES[name] + PROMPT
    assert finding(text, Property.BRIDGE).value == "exact"
    assert report(text).labels[0] == "append_only=no"


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


def test_a_template_that_escapes_markup_otherwise_than_plain_jinja_is_refused() -> None:
    """Text without markup does not show it."""
    with pytest.raises(ModelError, match="does not render the same with its text tracked"):
        found(TURNS.replace("m.content", "m.content | forceescape") + PROMPT)


def test_chance_is_refused() -> None:
    with pytest.raises(ModelError, match="No filter named 'random'"):
        found(TURNS.replace("m.content", "[m.content] | random") + PROMPT)


def test_reasoning_that_is_opened_without_being_asked_for_a_prompt() -> None:
    """What stands before a reply may be written behind the message itself."""
    opened = "{% if loop.last and m.role != 'assistant' %}<|im_start|>assistant\n<think>\n{% endif %}{% endfor %}"
    assert finding(TURNS.replace("{% endfor %}", opened), Property.PROMPT).value == "opens reasoning"
    assert finding(TURNS, Property.PROMPT).value == "plain"


@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_template_that_cuts_long_content_says_so(role: str) -> None:
    cut = f"{{% if m.role == '{role}' %}}{{{{ m.content[:1000] }}}}{{% else %}}{{{{ m.content }}}}{{% endif %}}"
    assert finding(CALLED.replace("{{ m.content }}", cut), Property.CONTENT).value == "cut"
    assert finding(CALLED, Property.CONTENT).value == "as given"
