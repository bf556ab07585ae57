"""STUB."""

from __future__ import annotations

from enum import StrEnum

from rollbook.render.hermes import HermesParser
from rollbook.render.hermes import last_opens_reasoning as opens_reasoning


class CallFormat(StrEnum):
    HERMES = "hermes"


class ReplyReader(HermesParser):
    def __init__(self, form, vocabulary, added):
        super().__init__(vocabulary, added)


def reads_back(form, text, calls, tools):
    return "<tool_call>" in text
