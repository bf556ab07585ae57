"""Openings are rendered once for all that begin alike: what comes back is the same, and nobody can change it."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from rollbook.errors import ModelError
from rollbook.render.chat import OPENINGS, ChatRenderer
from rollbook.trace.message import Message, Role
from tests.render.families import ADD, family


@pytest.fixture
def renderer() -> ChatRenderer:
    return family("qwen3-marked").renderer


def user(text: str) -> list[Message]:
    return [Message(role=Role.USER, content=text)]


def test_the_same_opening_again_is_the_one_before(renderer):
    first = renderer.open(user("the same"), [ADD])
    assert renderer.open(user("the same"), [msgspec.structs.replace(ADD)]) is first
    again = renderer.rerender(user("the same"), [ADD])
    assert again.prompt_ids.tolist() == first.prompt_ids.tolist()
    assert [each.token_ids.tolist() for each in again.messages] == [each.token_ids.tolist() for each in first.messages]


def test_another_message_or_another_tool_is_another_opening(renderer):
    first = renderer.open(user("one"), [ADD])
    other = msgspec.structs.replace(ADD, description="Adds.")
    assert text(renderer, renderer.open(user("one!"), [ADD])) != text(renderer, first)
    changed = renderer.open(user("one"), [other])
    assert b"Adds two" not in text(renderer, changed)
    assert b"Adds two" in text(renderer, first)
    assert b"Adds" not in text(renderer, renderer.open(user("one"), []))


def text(renderer, opening) -> bytes:
    return renderer.decode(np.concatenate([each.token_ids for each in opening.messages])).encode()


def test_nobody_can_change_what_the_next_one_gets(renderer):
    opening = renderer.open(user("fixed"), [])
    for array in (opening.prompt_ids, opening.messages[0].token_ids, opening.messages[0].runs):
        with pytest.raises(ValueError, match="read-only"):
            array[:1] = 0


def test_what_is_refused_is_refused_again(renderer):
    for content in ([{"type": "image"}], object(), 1 << 70):
        odd = [Message(role=Role.USER, content=content)]
        for _ in range(2):
            with pytest.raises(ModelError, match="instead of text"):
                renderer.open(odd, [])


def test_only_so_many_are_kept(renderer):
    first = renderer.open(user("0"), [])
    for number in range(1, OPENINGS + 1):
        renderer.open(user(str(number)), [])
    assert renderer.open(user("0"), []) is not first
