# ruff: noqa: E501 (templates read best on one line)
"""The tracked rendering: the text of plain Jinja, the origin of every character, bounds, errors."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.render.template import ChatTemplate, plain_render
from rollbook.render.tracked import CONTENT, SCAFFOLD, Tracked, scaffold, tags_of
from tests.render.families import template

CORNERS = {
    "macro": "{% macro turn(r, c) %}<{{ r }}>{{ c }}</{{ r }}>{% endmacro %}{% for m in messages %}{{ turn(m.role, m.content) }}{% endfor %}",
    "set block": "{% for m in messages %}{% set x %}[{{ m.content | trim }}]{% endset %}{{ x }}{{ x | length }}{% endfor %}",
    "concat": "{% for m in messages %}{{ '<' ~ m.role ~ '>' ~ m.content ~ loop.index ~ '\n' }}{% endfor %}",
    "filters": "{% for m in messages %}{{ (m.content | upper | replace('A', '<b>')) + ['x', m.role] | join('|') }}{% endfor %}",
    "filter block": "{% filter upper %}<a>{% for m in messages %}{{ m.content }}{% endfor %}{% endfilter %}",
    "call block": "{% macro box() %}<{{ caller() }}>{% endmacro %}{% call box() %}{{ messages[0].content }}{% endcall %}",
    "generation": "{% for m in messages %}<{% generation %}{{ m.content }}|{% endgeneration %}>{% endfor %}",
    "loop controls": "{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}<{{ m.content }}>{% endfor %}",
    "tojson": "{{ messages | tojson }}<{{ messages[0] | tojson(indent=2) }}>",
    "dict": "{% set tags = {'user': '<u>', 'tool': ['<t>', '</t>']} %}{% for m in messages %}{{ tags['user'] }}{{ m.content }}{{ tags.tool[1] }}{% endfor %}",
    "slices": "{% for m in messages %}{{ m.content[:3] + '<' + m.content[::-1] + ('ab' * 3)[1:4] }}{% endfor %}",
    "split": "{% for m in messages %}{% for p in m.content.split(' ') %}<{{ p.strip() }}>{% endfor %}{{ m.content.split('</think>')[-1].lstrip('\n') }}{% endfor %}",
    "namespace": "{% set ns = namespace(text='<') %}{% for m in messages %}{% set ns.text = ns.text + m.content + '>' %}{% endfor %}{{ ns.text }}",
    "numbers": "{{ 1.5 }}{{ 2 ** 3 }}{{ [1, 'a'] }}{{ none }}{{ true }}{% for i in range(3) %}{{ i }}{% endfor %}{{ missing }}",
    "folded": "{% for x in (('<a>', ['<b>'], {'k': '<c>'}), 1)[0] %}{{ x }}{{ x[0] }}{{ x.k }}{% endfor %}{% for x in ('<a>', '<b>')[::-1] %}{{ x }}{% endfor %}",
    "reversed": "{% for x in ('<a>', '<b>')[::-1] %}{{ x }}{{ messages[0].content }}{% endfor %}",
    "format": "{{ '<%s>' % messages[0].content }}{{ '<{}>'.format(messages[0].content) }}",
    "safe": "{{ messages[0].content | safe }}",
}
NAMES = ["smollm2", "qwen3", *CORNERS]
roles = st.sampled_from(["system", "user", "assistant", "tool"])
special = st.sampled_from(
    ["<|im_end|>", "<think>", "</think>", "{{ 7 * 7 }}", "{% raw %}", "<tool_response>", "\n", " a "]
)
contents = st.lists(st.text(max_size=5) | special, max_size=4).map("".join)
conversations = st.lists(st.fixed_dictionaries({"role": roles, "content": contents}), min_size=1, max_size=5)


def text_of(name: str) -> str:
    return CORNERS[name] if name in CORNERS else template(name)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(messages=conversations, prompt=st.booleans(), tools=st.none() | st.just([{"name": "add"}]))
def test_text_is_that_of_plain_jinja(name: str, messages: list[Any], tools: list[Any] | None, prompt: bool) -> None:
    compiled = ChatTemplate(text_of(name), {"bos_token": "<s>"})
    expected = plain_render(compiled, messages, tools, prompt=prompt)
    assert compiled.render(messages, tools, prompt=prompt).plain == expected


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=20, deadline=None)
@given(words=st.lists(st.text("äöüßéñ", min_size=1, max_size=6), min_size=1, max_size=4))
def test_content_is_never_scaffold(name: str, words: list[str]) -> None:
    messages = [{"role": scaffold("user"), "content": f"{word} {word}"} for word in words]
    made = ChatTemplate(text_of(name)).render(messages, None, prompt=True)
    assert not any(
        tag == SCAFFOLD and char in "äöüßéñÄÖÜÉÑ" for char, tag in zip(made.plain, tags_of(made), strict=True)
    )


@pytest.mark.parametrize(
    "name", ["smollm2", "qwen3", "macro", "concat", "generation", "dict", "namespace", "call block", "reversed"]
)
def test_literals_are_scaffold(name: str) -> None:
    made = ChatTemplate(text_of(name)).render([{"role": scaffold("user"), "content": "ÄÖÜ"}], None, prompt=True)
    for char, tag in zip(made.plain, tags_of(made), strict=True):
        assert (tag == SCAFFOLD) == (char not in "ÄÖÜ1")


def test_special_tokens_are_scaffold_and_variables_are_not() -> None:
    made = ChatTemplate("{{ bos_token }}{{ greeting }}", {"bos_token": "<s>"}, {"greeting": "<s>"}).render(
        [], None, prompt=True
    )
    assert tags_of(made) == "sssccc"


def test_a_content_tag_survives() -> None:
    made = ChatTemplate("{{ messages[0].content | trim }}").render(
        [{"content": Tracked(" x ", "777")}], None, prompt=False
    )
    assert (made, tags_of(made)) == ("x", "7")


def test_the_date_is_a_given_one() -> None:
    text = "{{ strftime_now('%d %b %Y') }}"
    assert ChatTemplate(text, now=datetime(2024, 7, 26)).render([], None, prompt=True) == "26 Jul 2024"
    with pytest.raises(ModelError, match="pass a fixed one"):
        ChatTemplate(text).render([], None, prompt=True)


@pytest.mark.parametrize(
    "text", ["{% for m in messages %}", "{{ 'a' + }}", "{% unknown %}", "{{ x | nofilter }}", "{% break %}"]
)
def test_a_template_that_does_not_compile(text: str) -> None:
    with pytest.raises(ModelError, match="does not compile"):
        ChatTemplate(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ raise_exception('Roles must alternate') }}", "Roles must alternate"),
        ("{{ messages[0].role.x.y }}", "no attribute"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% for i in range(1000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}", "steps of range"),
        ("{{ 'a' * 100000000000 }}", "repeats too much"),
        ("{{ messages[0].content * 100000000000 }}", "repeats too much"),
        ("{{ 9 ** 100000 }}", "power is too large"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ ['a'] | join(attribute='x') }}", "not supported"),
        ("{{ lipsum() }}", "undefined"),
    ],
)
def test_what_goes_wrong_in_a_template(text: str, message: str) -> None:
    with pytest.raises(ModelError, match=message):
        ChatTemplate(text).render([{"role": "user", "content": "x"}], None, prompt=True)


def test_the_size_of_a_rendering_is_bounded() -> None:
    """Just above the bound, so that a lost bound costs no more than memory for this one text."""
    text = "{% for i in range(9) %}{{ 'abcdefgh' * 999999 }}{% endfor %}"
    with pytest.raises(ModelError, match="it writes more than 67108864 characters"):
        ChatTemplate(text).render([], None, prompt=True)


def test_json_is_content() -> None:
    made = ChatTemplate("<{{ messages | tojson }}>").render([{"role": "<|im_end|>"}], None, prompt=True)
    assert tags_of(made) == SCAFFOLD + CONTENT * (len(made) - 2) + SCAFFOLD


@given(st.dictionaries(st.text(max_size=3), st.text(max_size=6), max_size=3), st.booleans(), st.booleans())
def test_json_keeps_the_tags_of_what_is_in_it(values: dict[str, str], ascii_only: bool, ordered: bool) -> None:
    tracked = {key: Tracked(text, "x" * len(text)) for key, text in values.items()}
    text = f"{{{{ value | tojson(ensure_ascii={ascii_only}, sort_keys={ordered}) }}}}"
    made = ChatTemplate(text, variables={"value": tracked}).render([], None, prompt=True)
    assert made.plain == json.dumps(values, ensure_ascii=ascii_only, sort_keys=ordered)
    shown = "".join(char for char, tag in zip(made.plain, tags_of(made), strict=True) if tag == "x")
    kept = sorted(values.items()) if ordered else values.items()
    assert shown == "".join(json.dumps(value, ensure_ascii=ascii_only) for _, value in kept if value)


def test_content_is_no_template() -> None:
    content = "{{ raise_exception('no') }}{% for %}"
    made = ChatTemplate(template("qwen3")).render([{"role": "user", "content": content}], None, prompt=True)
    assert content in made


def test_the_variables_that_a_template_reads() -> None:
    text = (
        "{% if not day is defined %}{% set day = 'x' %}{% endif %}{% set own = namespace(a=1) %}"
        "{% generation %}{{ bos_token }}{{ day }}{{ own.a }}{{ messages[0].role }}{% endgeneration %}"
        "{% for m in messages %}{{ loop.index }}{% if think | default(true) %}{{ range(2) }}{% endif %}{% endfor %}"
        "{{ strftime_now('%Y') }}{% macro f(x) %}{{ x }}{{ raise_exception(deep) }}{% endmacro %}"
    )
    assert ChatTemplate(text).reads == {"day", "bos_token", "think", "deep"}


@pytest.mark.parametrize("name", ["messages", "documents", "range", "bos_token"])
def test_a_variable_that_would_be_dropped_is_refused(name: str) -> None:
    with pytest.raises(ModelError, match=f"{name}: the renderer itself gives"):
        ChatTemplate("x", {"bos_token": "<s>"}, {name: "mine", "other": 1})


@pytest.mark.parametrize("doubled", ["ns.x ~ ns.x", "ns.x + ns.x", "[ns.x, ns.x] | join"])
def test_a_text_that_doubles_ends_before_the_memory_does(doubled: str) -> None:
    text = f"{{% set ns = namespace(x='ab') %}}{{% for i in range(60) %}}{{% set ns.x = {doubled} %}}{{% endfor %}}"
    with pytest.raises(ModelError, match="a text of more than"):
        ChatTemplate(text).render([], None, prompt=False)
