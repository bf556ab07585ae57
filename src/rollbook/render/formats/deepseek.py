"""DeepSeek V3 and R1, and V3.1: a section of calls, each with a separator inside.

V3 and R1 write ``function``, the separator, the name, a line end and the arguments as a fenced JSON block. V3.1
writes the name, the separator and the arguments. Nothing else may stand in a call, no white space either (inside the
JSON it may).

Source: the chat templates of DeepSeek-V3, DeepSeek-R1 and DeepSeek-V3.1; vLLM's ``deepseek_v3`` and ``deepseek_v31``.
"""

# ruff: noqa: RUF001 (the bars are the family's own)

from __future__ import annotations

import re

from rollbook.render.calls import Attempt, Refused, json_arguments, text_of
from rollbook.render.formats.form import Body, Form, Found, malformed, raw_of
from rollbook.trace.message import ParseStatus

__all__ = ["DeepSeekV3", "DeepSeekV31"]

_SEPARATOR = "<｜tool▁sep｜>"
_NAME = re.compile(r"[^\s<>{}\"`]+")
_FENCED = re.compile(r"([^\n]*)\n```json\n(.*)\n```", re.DOTALL)


class DeepSeekV31(Form):
    """Name, separator, JSON."""

    opens = "<｜tool▁call▁begin｜>"
    closes = "<｜tool▁call▁end｜>"
    quotes = True
    inner = (_SEPARATOR,)
    section = ("<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>")

    def find(self, body: Body) -> list[Found]:
        return [Found(raw_of(body), lambda: _named(*_halves(body)))]


class DeepSeekV3(DeepSeekV31):
    """``function``, separator, name, fenced JSON."""

    def find(self, body: Body) -> list[Found]:
        return [Found(raw_of(body), lambda: _fenced(*_halves(body)))]


def _halves(body: Body) -> tuple[str, str]:
    if body.count(_SEPARATOR) != 1:
        raise malformed(f"{_SEPARATOR} must stand in it once")
    at = body.index(_SEPARATOR)
    return text_of(raw_of(body[:at])), text_of(raw_of(body[at + 1 :]))


def _named(name: str, arguments: str) -> Attempt:
    if not name:
        raise Refused(ParseStatus.MISSING_NAME, "no name stands before the separator")
    if _NAME.fullmatch(name) is None:
        raise malformed(f"{name[:60]!r} is no name")
    return json_arguments(arguments, name)


def _fenced(kind: str, rest: str) -> Attempt:
    block = _FENCED.fullmatch(rest)
    if kind != "function" or block is None:
        raise malformed("it must be function, the separator, the name, and the arguments as a ```json block")
    return _named(block[1], block[2])
