"""Messages as templates read them."""

from __future__ import annotations

from typing import Any

import pytest

from rollbook.errors import ModelError
from rollbook.render.conversation import Chat
from rollbook.render.toolprompt import HERMES_EXAMPLES
from rollbook.render.tracked import SCAFFOLD, message_tag, tags_of
from rollbook.trace.message import Message, ParseStatus, Role, ToolCall
from tests.render.families import ADD

NATIVE = Chat(None, renders_calls=True)
CALL = ToolCall(id="c1", name="add", arguments={"a": 1, "b": 2})


def test_content_has_the_tag_of_its_message_and_roles_are_scaffold() -> None:
    entries = NATIVE.entries([Message(role=Role.SYSTEM, content="ab"), Message(role=Role.USER, content="c")])
    assert [tags_of(one["content"]) for one in entries] == [message_tag(0) * 2, message_tag(1)]
    assert [set(tags_of(one["role"])) for one in entries] == [{SCAFFOLD}] * 2
    assert type(entries[0]["role"].plain) is str


def test_calls_reasoning_and_results_in_openai_form() -> None:
    said = Message(role=Role.ASSISTANT, content="I add.", reasoning="hm", tool_calls=(CALL,))
    entries = NATIVE.entries([said, Message(role=Role.TOOL, content="3", call_id="c1", name="add")])
    assert entries[0]["tool_calls"] == [
        {"id": "c1", "type": "function", "function": {"name": "add", "arguments": {"a": 1, "b": 2}}}
    ]
    assert entries[0]["reasoning_content"] == "hm"
    assert (entries[1]["role"], entries[1]["tool_call_id"], entries[1]["name"]) == ("tool", "c1", "add")


def test_a_tool_prompt_spells_calls_as_text() -> None:
    chat = Chat(HERMES_EXAMPLES, renders_calls=False)
    (entry,) = chat.entries([Message(role=Role.ASSISTANT, content="I add.", tool_calls=(CALL, CALL))])
    assert "tool_calls" not in entry
    call = '<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": 2}}\n</tool_call>'
    assert entry["content"] == f"I add.\n{call}\n{call}"


def test_without_tools_nothing_is_added() -> None:
    messages = (Message(role=Role.USER, content="x"),)
    assert Chat(HERMES_EXAMPLES, renders_calls=False).with_tools(messages, ()) == messages
    assert NATIVE.with_tools(messages, [ADD]) == messages


@pytest.mark.parametrize(
    "call",
    [
        ToolCall(id="c", raw="{", status=ParseStatus.INVALID_JSON),
        ToolCall(id="c", name="add", arguments={}, status=ParseStatus.BAD_ARGUMENTS),
        ToolCall(id="c", name="add"),
    ],
)
def test_calls_that_did_not_parse_are_refused(call: ToolCall) -> None:
    with pytest.raises(ModelError, match="did not parse"):
        NATIVE.entries([Message(role=Role.ASSISTANT, tool_calls=(call,))])


def test_calls_that_the_template_would_drop_are_refused() -> None:
    with pytest.raises(ModelError, match="no place for tool calls"):
        Chat(None, renders_calls=False).entries([Message(role=Role.ASSISTANT, tool_calls=(CALL,))])


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ([{"type": "image"}, {"type": "text", "text": "see"}], r"holds blocks \(image, text\) instead of text"),
        ([{"text": "see"}, "words"], r"holds blocks \(dict, str\)"),
        ([], "holds list"),
        (None, "holds NoneType"),
        (b"bytes", "holds bytes"),
    ],
)
def test_blocks_are_refused_and_named(content: Any, words: str) -> None:
    """Nothing checks the fields of a message that is made in Python; the renderer does."""
    with pytest.raises(ModelError, match=words):
        NATIVE.entries([Message(role=Role.TOOL, content=content, call_id="c")])


def test_reasoning_that_is_no_text_is_refused_like_content() -> None:
    blocks: object = [{"type": "text", "text": "hm"}]
    with pytest.raises(ModelError, match=r"a assistant message holds blocks \(text\)"):
        NATIVE.entries([Message(role=Role.ASSISTANT, content="", reasoning=blocks)])  # pyright: ignore
