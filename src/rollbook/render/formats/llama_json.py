"""Llama 3.1 to 3.3: the reply itself is ``{"name": .., "parameters": {..}}``, perhaps behind ``<|python_tag|>``.

All that stands behind the tag is calls, several with ``;`` between them; what is not JSON there is one malformed
attempt. Without the tag nothing marks a call, so the rule is: what the reply says outside reasoning is calls where,
white space aside, it starts with a brace and, as its first key, ``name``, ``parameters``, ``arguments``, ``type`` or
``function`` (in either kind of quote, perhaps in a code fence); then all of it is read, and anything beside the
objects makes it malformed. Any other JSON is content, and so is a call with text before it. A reply that the
generation limit cut before its first key is content.

Source: the chat templates of Llama-3.1-8B-Instruct and Llama-3.3-70B-Instruct (one call a turn, no tag);
vLLM's ``llama3_json`` parser (the tag, ``;``, and a reply that starts with a brace).
"""

from __future__ import annotations

import re
from typing import Any

from rollbook.render.calls import Refused, call_of, json_sequence
from rollbook.render.formats.form import Body, Form, Found, raw_of, refused
from rollbook.trace.message import ParseStatus

__all__ = ["LlamaJson"]

_STARTS = re.compile(rb"\s*(?:```(?:json)?\s*)?\{\s*[\"'](?:name|parameters|arguments|type|function)[\"']")


class LlamaJson(Form):
    """The reply is JSON."""

    opens = "<|python_tag|>"

    def find(self, body: Body) -> list[Found]:
        raw = raw_of(body)
        try:
            items = json_sequence(raw.decode("utf-8"), ";")
        except ValueError as problem:
            return [refused(raw, Refused(ParseStatus.INVALID_JSON, f"the tool call is not valid JSON: {problem}"))]
        if len(items) == 1:
            return [_item(raw, items[0][1])]
        return [_item(text.encode(), value) for text, value in items]

    def unmarked(self, content: bytes) -> bool:
        return _STARTS.match(content) is not None


def _item(raw: bytes, value: Any) -> Found:
    return Found(raw, lambda: call_of(value, "parameters"))
