"""Bytes of a reply as a message."""

from __future__ import annotations

import pytest

from rollbook.render.reply_message import reply_message
from rollbook.trace.message import Role, ToolCall


@pytest.mark.parametrize(
    ("content", "text", "raw"),
    [
        (b"", "", None),
        ("\u00e9".encode(), "\u00e9", None),
        ("\ufffd".encode(), "\ufffd", None),  # the policy may write it itself
        (b"a\xff", "a\ufffd", b"a\xff"),
        ("\ufffd".encode() + b"\xff", "\ufffd\ufffd", "\ufffd".encode() + b"\xff"),
    ],
)
def test_bytes_are_kept_where_they_are_no_text(content: bytes, text: str, raw: bytes | None) -> None:
    made = reply_message(content, None, ())
    assert (made.role, made.content, made.raw) == (Role.ASSISTANT, text, raw)


def test_no_reasoning_is_not_empty_reasoning() -> None:
    assert reply_message(b"", None, ()).reasoning is None
    assert reply_message(b"", b"", ()).reasoning == ""
    assert reply_message(b"", b"hm\xff", ()).reasoning == "hm\ufffd"


def test_calls_keep_their_order() -> None:
    calls = [ToolCall(id="b"), ToolCall(id="a")]
    assert reply_message(b"", None, iter(calls)).tool_calls == tuple(calls)
