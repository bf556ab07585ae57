"""Images and other blocks: refused with a clear error until they are supported, never dropped and never expanded."""

from __future__ import annotations

from typing import Any, cast

import numpy as np
import pytest

from rollbook.errors import ModelError
from rollbook.render import ChatRenderer
from rollbook.trace import Message, Role
from tests.cases.case import report
from tests.render.stock import NAMES, stock


def holding(role: Role, blocks: object) -> Message:
    """A message as careless Python code makes it: nothing checks a field when it is set."""
    return Message(role=role, content=cast("str", blocks), call_id="c0" if role is Role.TOOL else None)


@report("H11")
def test_a_placeholder_in_a_message_is_text_and_is_never_expanded(given: dict[str, Any], qwen: ChatRenderer) -> None:
    """The vocabulary has image tokens; only the template may write them, and it is given no image."""
    pad = "<|image_pad|>"
    text = pad * given["expand_to"]
    sent = qwen.open([Message(role=Role.USER, content=text)], ())
    again = qwen.extend(151645, [Message(role=Role.USER, content=text)], ())
    for made in (sent, again):
        ids = np.concatenate([one.token_ids for one in made.messages])
        assert qwen.decode(ids).count(pad) == given["expand_to"]
        assert 151655 not in ids.tolist()


@report("H12")
@pytest.mark.parametrize("name", NAMES)
def test_an_image_block_is_refused_and_not_dropped(given: dict[str, Any], name: str) -> None:
    renderer = stock(name).renderer
    message = given["message"]
    blocked = holding(Role(message["role"]), message["content"])
    stop = min(renderer.info.stop_ids)
    with pytest.raises(ModelError, match=r"holds blocks \(image, text\) instead of text; .* nothing is dropped"):
        renderer.extend(stop, [blocked], ())
    with pytest.raises(ModelError, match=r"holds blocks \(image, text\)"):
        renderer.open([Message(role=Role.USER, content="?"), blocked], ())
    for content in (None, 7, {"type": "image"}, [{"type": "video"}], ["text"]):
        with pytest.raises(ModelError, match="instead of text"):
            renderer.open([holding(Role.USER, content)], ())
