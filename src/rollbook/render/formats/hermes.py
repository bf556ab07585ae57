"""Hermes: ``<tool_call>{"name": .., "arguments": {..}}</tool_call>``, each call on its own.

Source: the chat templates of Hermes 2 Pro and 3, Qwen2.5 and Qwen3; vLLM's ``hermes`` parser.
"""

from __future__ import annotations

from rollbook.render.calls import json_call, text_of
from rollbook.render.formats.form import Body, Form, Found, raw_of

__all__ = ["Hermes"]


class Hermes(Form):
    """JSON between markers."""

    opens = "<tool_call>"
    closes = "</tool_call>"

    def find(self, body: Body) -> list[Found]:
        raw = raw_of(body)
        return [Found(raw, lambda: json_call(text_of(raw)))]
