"""Qwen3-Coder, Qwen3.5 and later: ``<function=NAME>`` and ``<parameter=KEY>`` blocks of raw text between the
``<tool_call>`` markers.

A value that starts with a line end is framed: it runs to a ``</parameter>`` on a line of its own that the next
parameter or the end of the function follows, and the two line ends of the frame are not part of it. A value that
starts at once runs to its ``</parameter>`` on the same terms, but for the line. Both ends of ``<function=NAME>`` must
be there, nothing but white space stands between blocks, and a key stands once.

The form has no escapes, so a value that holds the form's own delimiters can be read in two ways. Within a line they
are text of a framed value. On a line of its own, a ``<parameter=KEY>``, ``</parameter>``, ``<function=NAME>`` or
``</function>`` that would be part of a value is `bad_arguments`, ``ambiguous: ..``; so is any of them inside a value
without a frame. A text that happens to be well-formed when it is cut (a closing line and a new parameter that no
opening line comes before) cannot be told from two parameters: a limit of the format.

Values get their types by `rollbook.render.formats.typed`, Python's words included, for the template prints them.

Source: the chat templates of Qwen3-Coder and Qwen3.5; ``qwen3coder_tool_parser.py`` beside the former's weights.
"""

from __future__ import annotations

import re

from rollbook.render.calls import Attempt, Refused, text_of
from rollbook.render.formats.form import Body, Form, Found, Part, malformed, raw_of
from rollbook.render.formats.typed import typed_arguments_python
from rollbook.trace.message import ParseStatus

__all__ = ["QwenXml"]

_FUNCTION = re.compile(r"[ \t\r\n]*<function=([^<>\n]*)>[ \t\r\n]*")
_PARAMETER = re.compile(r"<parameter=([^<>\n]+)>")
_END = re.compile(r"</function>[ \t\r\n]*\Z")
_CLOSE_FRAMED = re.compile(r"(?<=\n)</parameter>[ \t\r\n]*(?=<parameter=[^<>\n]+>|</function>)")
_CLOSE_BARE = re.compile(r"</parameter>[ \t\r\n]*(?=<parameter=[^<>\n]+>|</function>)")
_OWN_LINE = re.compile(r"(?m)^(?:<parameter=[^<>\n]+>|</parameter>|<function=[^<>\n]+>|</function>)[ \t\r]*$")
_DELIMITER = re.compile(r"<parameter=[^<>\n]+>|</parameter>|<function=[^<>\n]+>|</function>")
_OPENS_VALUE = re.compile(rb"<parameter=[^<>\n]+>\n")
_CLOSES_VALUE = re.compile(rb"(?m)(?<=\n)</parameter>[ \t\r]*$")


class QwenXml(Form):
    """Blocks of raw text."""

    opens = "<tool_call>"
    closes = "</tool_call>"

    def find(self, body: Body) -> list[Found]:
        raw = raw_of(body)
        return [Found(raw, lambda: _read(text_of(raw)))]

    def weight(self, part: Part) -> int:
        data = part if isinstance(part, bytes) else part.encode()
        return len(_OPENS_VALUE.findall(data)) - len(_CLOSES_VALUE.findall(data))


def _read(text: str) -> Attempt:
    opened = _FUNCTION.match(text)
    if opened is None:
        raise malformed("it must start with <function=NAME>")
    name = opened[1]
    if not name.strip():
        raise Refused(ParseStatus.MISSING_NAME, "<function=> names no tool")
    values: dict[str, str] = {}
    at = opened.end()
    while _END.match(text, at) is None:
        key, value, at = _parameter(text, at, name)
        if key in values:
            raise malformed(f"the parameter {key[:60]!r} stands twice", name=name)
        values[key] = value
    return Attempt(name=name, arguments=dict(values), convert=typed_arguments_python)


def _parameter(text: str, at: int, name: str) -> tuple[str, str, int]:
    """One parameter: its key, its value, and where the next starts."""
    opened = _PARAMETER.match(text, at)
    if opened is None:
        raise _misplaced(text, at, name)
    start = opened.end()
    framed = text.startswith("\n", start)
    closed = (_CLOSE_FRAMED if framed else _CLOSE_BARE).search(text, start)
    if closed is None:
        raise malformed(f"the parameter {opened[1][:60]!r} is not closed", name=name)
    value = text[start + 1 : max(start + 1, closed.start() - 1)] if framed else text[start : closed.start()]
    stray = (_OWN_LINE if framed else _DELIMITER).search(value)
    if stray is not None:
        why = f"ambiguous: {stray[0].strip()[:60]!r} stands inside the parameter {opened[1][:60]!r}"
        raise Refused(ParseStatus.BAD_ARGUMENTS, why, name=name)
    return opened[1], value, closed.end()


def _misplaced(text: str, at: int, name: str) -> Refused:
    """What is neither a parameter nor the function's end stands where one of them must."""
    if text.startswith("</function>", at) and _END.search(text, at + 1):
        why = "ambiguous: '</function>' stands more than once; a value may hold the first"
        return Refused(ParseStatus.BAD_ARGUMENTS, why, name=name)
    return malformed("parameters must follow one another, then </function>", name=name)
