"""Ends of messages, and the cost of long batches."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import ModelError
from rollbook.render.conversation import Chat
from rollbook.render.increments import Increments, Text, common_prefix
from rollbook.render.template import ChatTemplate
from rollbook.render.tracked import SCAFFOLD, concat, scaffold, tags_of
from rollbook.trace.message import Message, Role
from tests.render.families import template

CHAT = Chat(None, renders_calls=True)
QWEN = Increments(ChatTemplate(template("qwen3")), ("<|im_end|>",))
roles = st.sampled_from([Role.USER, Role.TOOL, Role.ASSISTANT])
batches = st.lists(st.builds(Message, role=roles, content=st.text("ab \n<", max_size=4)), min_size=1, max_size=6)


def parts(text: Text) -> list[str]:
    return [text.text.plain[a:b] for a, b in zip((0, *text.ends), (*text.ends, len(text.text)), strict=True)]


@settings(deadline=None)
@given(st.text("ab", max_size=40), st.text("ab", max_size=40))
def test_common_prefix(one: str, other: str) -> None:
    expected = next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
    assert common_prefix(one, other) == expected


@settings(deadline=None)
@given(batches)
def test_ends_rise_and_each_message_holds_its_own_text(batch: list[Message]) -> None:
    started = [Message(role=Role.USER, content="go"), *batch]
    for text, given_messages in (
        (QWEN.after_turn(CHAT.entries(batch), None), batch),
        (QWEN.first(CHAT.entries(started), None), started),
    ):
        assert list(text.ends) == sorted(text.ends)
        assert "".join(parts(text)) == text.text
        shown = parts(text)
        if Role.ASSISTANT not in {one.role for one in batch}:
            assert all(one.content in part for one, part in zip(given_messages, shown, strict=False))
        assert text.prompt == shown[-1] == "<|im_start|>assistant\n"


def test_the_end_of_turn_token_of_the_base_is_not_repeated() -> None:
    text = QWEN.after_turn(CHAT.entries([Message(role=Role.USER, content="<|im_end|>")]), None)
    assert text.text == "\n<|im_start|>user\n<|im_end|><|im_end|>\n<|im_start|>assistant\n"
    assert tags_of(text.text).replace(SCAFFOLD, "") == tags_of(text.text)[18:28]


def test_only_the_template_ends_a_turn() -> None:
    text = concat(["x<|im_end|>", scaffold("<|im_end|>"), "<|im_end|>"])
    assert QWEN.stop(text, 1).end() == 21


def test_what_stands_in_place_of_the_end_of_turn_is_told() -> None:
    text = concat(["x", scaffold("</s>\n" + "y" * 80)])
    with pytest.raises(ModelError, match=rf"with any of <\|im_end\|>; behind the .* stands '</s>\\n{'y' * 55}'"):
        QWEN.stop(text, 1)


def test_an_empty_first_result_keeps_its_frame() -> None:
    entries = CHAT.entries([Message(role=Role.TOOL, content=""), Message(role=Role.TOOL, content="x")])
    assert parts(QWEN.after_turn(entries, None))[0] == "\n<|im_start|>user\n<tool_response>\n\n</tool_response>"


def test_a_template_that_takes_no_lone_system_message() -> None:
    """The tokens of the system message then stand with the next message."""
    text = "{% if messages | length < 2 %}{{ raise_exception('too few') }}{% endif %}" + template("smollm2")
    made = Increments(ChatTemplate(text), ("<|im_end|>",))
    entries = CHAT.entries([Message(role=Role.SYSTEM, content="Be brief."), Message(role=Role.USER, content="Hi")])
    assert parts(made.first(entries, None))[0] == ""
    with pytest.raises(ModelError, match="too few"):
        made.first(entries[:1], None)


def test_a_long_batch_costs_no_more_than_its_length() -> None:
    def seconds(count: int) -> float:
        entries = CHAT.entries([Message(role=Role.TOOL, content=f"{n} " * 500) for n in range(count)])
        started = time.process_time()
        QWEN.after_turn(entries, None)
        return time.process_time() - started

    few = min(seconds(20) for _ in range(3))
    assert seconds(200) < 40 * few  # quadratic cost would be 100 times
