"""GLM 4.5, 4.6 and 4.7: a name, then keys and values as raw text between markers of their own.

White space around the name and between the pairs says nothing (4.6 writes line ends, 4.7 none); keys and values are
taken exactly. The inner markers are tokens in the family's tokenizers; a value that holds their spelling as ordinary
text is text. Where they do stand inside a value, as tokens or in a text without tokens, a reading that takes them as
text and one that takes them as markers may both end well: `bad_arguments`, ``ambiguous: ..``. A key stands once.

Values get their types by `rollbook.render.formats.typed`.

Source: the chat templates of GLM-4.5, GLM-4.6 and GLM-4.7-Flash.
"""

from __future__ import annotations

import re

from rollbook.render.calls import Attempt, Refused, text_of
from rollbook.render.formats.form import Body, Form, Found, Part, malformed, raw_of
from rollbook.render.formats.typed import typed_arguments
from rollbook.trace.message import ParseStatus

__all__ = ["Glm"]

_KEY, _KEY_END, _VALUE, _VALUE_END = "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"
_PAIR = [_KEY, _KEY_END, _VALUE, _VALUE_END]
_NAME = re.compile(r"[^\s<>{}\"]+")
_SPACE = " \t\r\n"


class Glm(Form):
    """Pairs between markers."""

    opens = "<tool_call>"
    closes = "</tool_call>"
    inner = tuple(_PAIR)

    def find(self, body: Body) -> list[Found]:
        return [Found(raw_of(body), lambda: _read(body))]

    def weight(self, part: Part) -> int:
        return {_VALUE: 1, _VALUE_END: -1}.get(part, 0) if isinstance(part, str) else 0


def _read(body: Body) -> Attempt:
    markers = [part for part in body if isinstance(part, str)]
    texts = _texts(body)
    name = text_of(texts[0]).strip(_SPACE)
    if not name:
        raise Refused(ParseStatus.MISSING_NAME, "no name stands in the tool call")
    if _NAME.fullmatch(name) is None:
        raise malformed(f"{name[:60]!r} is no name")
    gaps = [texts[place].strip(_SPACE.encode()) for place in range(2, len(texts)) if place % 2 == 0]
    if len(markers) % 4 or markers != _PAIR * (len(markers) // 4) or any(gaps):
        raise _broken(markers, texts, name)
    values: dict[str, str] = {}
    for place in range(1, len(texts), 4):
        key = text_of(texts[place])
        if key in values:
            raise malformed(f"the key {key[:60]!r} stands twice", name=name)
        values[key] = text_of(texts[place + 2])
    return Attempt(name=name, arguments=dict(values), convert=typed_arguments)


def _texts(body: Body) -> list[bytes]:
    """The bytes before, between and behind the markers."""
    texts: list[list[bytes]] = [[]]
    for part in body:
        if isinstance(part, bytes):
            texts[-1].append(part)
        else:
            texts.append([])
    return [b"".join(parts) for parts in texts]


def _broken(markers: list[str], texts: list[bytes], name: str) -> Refused:
    """Malformed, or ambiguous where the whole would be well-formed with some markers taken as text of a value."""
    framed = len(markers) > 4 and markers[:3] == _PAIR[:3] and markers[-1] == _VALUE_END
    if framed and not (texts[2] + texts[-1]).strip(_SPACE.encode()):
        why = "ambiguous: a value holds markers of the form, or the markers are out of order"
        return Refused(ParseStatus.BAD_ARGUMENTS, why, name=name)
    return malformed("pairs of <arg_key> and <arg_value> must follow the name, and nothing else", name=name)
