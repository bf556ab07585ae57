"""Kimi K2: a section of ``functions.NAME:INDEX``, an inner marker, and the arguments as JSON.

The policy writes the call's id itself, and the template prints it again with the result, so it is kept verbatim, also
where it is wrong (but for a wrong one of more than `_MAX_ID` characters). An id that is not ``functions.NAME:INDEX``
names no tool: `missing_name`. White space around an id makes it another id. An id that stands twice in one reply
makes the second call malformed.

Source: the chat templates of Kimi-K2-Instruct and Kimi-K2-Thinking and the tool-calling guide beside them.
"""

from __future__ import annotations

import re

from rollbook.render.calls import Attempt, Refused, json_arguments, text_of
from rollbook.render.formats.form import Body, Form, Found, malformed, raw_of
from rollbook.trace.message import ParseStatus

__all__ = ["Kimi"]

_ID = re.compile(r"functions\.([^\s<>{}:\"]+):\d+")
_MAX_ID = 100
"""Characters of a wrong id that is still kept."""
_ARGUMENTS = "<|tool_call_argument_begin|>"


class Kimi(Form):
    """An id of the policy's own, then JSON."""

    opens = "<|tool_call_begin|>"
    closes = "<|tool_call_end|>"
    quotes = True
    inner = (_ARGUMENTS,)
    section = ("<|tool_calls_section_begin|>", "<|tool_calls_section_end|>")
    reasoning = (("<think>", "</think>"), ("◁think▷", "◁/think▷"))

    def find(self, body: Body) -> list[Found]:
        return [Found(raw_of(body), lambda: _read(body))]


def _read(body: Body) -> Attempt:
    if body.count(_ARGUMENTS) != 1:
        raise malformed(f"{_ARGUMENTS} must stand in it once")
    at = body.index(_ARGUMENTS)
    native = text_of(raw_of(body[:at]))
    named = _ID.fullmatch(native)
    if named is None:
        why = f"the id {native[:60]!r} names no tool; it must be functions.NAME:INDEX"
        raise Refused(ParseStatus.MISSING_NAME, why, native_id=native if len(native) <= _MAX_ID else None)
    return json_arguments(text_of(raw_of(body[at + 1 :])), named[1], native)
