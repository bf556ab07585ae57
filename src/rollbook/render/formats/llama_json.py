"""Llama 3.1 to 3.3: the reply itself is ``{"name": .., "parameters": {..}}``, perhaps behind ``<|python_tag|>``.

All that stands behind the tag is calls, several with ``;`` between them; what is not JSON there is one malformed
attempt. Without the tag nothing marks a call, so the rule is: what the reply says outside reasoning is calls where,
white space aside, it starts with a brace and, as its first key, ``name``, ``parameters``, ``arguments``, ``type`` or
``function`` (in either kind of quote, perhaps in a code fence), and either ``parameters`` or ``arguments`` is a key
in it or the first key names a tool that is offered. Then all of it is read, and anything beside the objects makes it
malformed. Any other JSON is content (an answer may well have a ``name``), and so is a call with text before it.
Beside name and parameters there may be ``"type": "function"``, with just this value.

Source: Meta's prompt format page of Llama 3.1 (``"type": "function"`` in its example of a call); the chat templates
of Llama-3.1-8B-Instruct and Llama-3.3-70B-Instruct (one call a turn, no tag);
vLLM's ``llama3_json`` parser (the tag, ``;``, and a reply that starts with a brace).
"""

from __future__ import annotations

import re
from collections.abc import Set
from typing import Any, cast

from rollbook.render.calls import Refused, call_of, json_sequence
from rollbook.render.formats.form import Body, Form, Found, raw_of, refused
from rollbook.render.vocabulary import show_bytes
from rollbook.trace.message import ParseStatus

__all__ = ["LlamaJson"]

_STARTS = re.compile(rb"\s*(?:```(?:json)?\s*)?\{\s*[\"'](?:name|parameters|arguments|type|function)[\"']")
_NAMED = re.compile(rb"\s*(?:```(?:json)?\s*)?\{\s*[\"']name[\"']\s*:\s*[\"']([^\"']*)[\"']")
_ARGUMENTS = re.compile(rb"[\"'](?:parameters|arguments)[\"']\s*:")


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

    def unmarked(self, content: bytes, names: Set[str]) -> bool:
        if _STARTS.match(content) is None:
            return False
        named = _NAMED.match(content)
        return _ARGUMENTS.search(content) is not None or (named is not None and show_bytes(named[1]) in names)


def _item(raw: bytes, value: Any) -> Found:
    if isinstance(value, dict):
        fields = cast("dict[str, Any]", value)
        value = {key: said for key, said in fields.items() if (key, said) != ("type", "function")}
    return Found(raw, lambda: call_of(value, "parameters"))
