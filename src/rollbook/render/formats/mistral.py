"""Mistral: what follows ``[TOOL_CALLS]``, in one of two ways. No marker closes a call: the next opening does, or the
end of the reply.

`Mistral` (tokenizers up to v7: Nemo, Small 3.1): a JSON list of objects with ``name``, ``arguments`` and, in
templates, ``id``; each object is one attempt, a list that is not exact JSON is one attempt, and an empty list is
one. `MistralArgs` (v11 and v13: Small 3.2, Devstral, Magistral): ``name``, then ``[CALL_ID]`` and an id (v11), then
``[ARGS]`` and the arguments as JSON. White space around a name says nothing.

An id that the policy writes must be 9 letters or digits, for templates refuse any other; a wrong id, and one that
stands twice in a reply, makes its call malformed.

Source: mistral-common 1.13 (``tokens/tokenizers/instruct.py``) and the chat templates of the models named.
"""

from __future__ import annotations

import hashlib
import re
from typing import Any, cast

from rollbook.render.calls import Attempt, Refused, call_of, json_arguments, json_sequence, read_json, text_of
from rollbook.render.formats.form import Body, Form, Found, malformed, raw_of, refused
from rollbook.trace.message import ParseStatus

__all__ = ["Mistral", "MistralArgs"]

_ID = re.compile(r"[a-zA-Z0-9]{9}")
_NAME = re.compile(r"[^\s<>{}\[\]\"]+")
_ALPHABET = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_CALL_ID, _ARGS = "[CALL_ID]", "[ARGS]"


class Mistral(Form):
    """A JSON list of calls."""

    opens = "[TOOL_CALLS]"
    reasoning = (("[THINK]", "[/THINK]"), ("<think>", "</think>"))

    def find(self, body: Body) -> list[Found]:
        raw = raw_of(body)
        try:
            value = read_json(raw.decode("utf-8"))
        except ValueError as problem:
            return [refused(raw, Refused(ParseStatus.INVALID_JSON, f"the tool calls are not valid JSON: {problem}"))]
        if not isinstance(value, list) or not value:
            return [refused(raw, Refused(ParseStatus.NOT_AN_OBJECT, "a list of tool calls must follow [TOOL_CALLS]"))]
        items = cast("list[Any]", value)
        texts = [raw] if len(items) == 1 else _pieces(raw)
        return [_item(text, item) for text, item in zip(texts, items, strict=True)]

    def call_id(self, prefix: str, n: int) -> str:
        number = int.from_bytes(hashlib.blake2b(f"{prefix}\0{n}".encode("utf-8", "surrogatepass")).digest()[:8])
        return "".join(_ALPHABET[number // len(_ALPHABET) ** place % len(_ALPHABET)] for place in range(9))


class MistralArgs(Mistral):
    """Name, perhaps an id, then JSON."""

    inner = (_CALL_ID, _ARGS)
    quotes = True

    def find(self, body: Body) -> list[Found]:
        return [Found(raw_of(body), lambda: _read(body))]


def _item(raw: bytes, item: Any) -> Found:
    def read() -> Attempt:
        if isinstance(item, dict) and "id" in item:
            _check_id(cast("Any", item["id"]))
        return call_of(item, "arguments", id_key="id")

    return Found(raw, read)


def _check_id(native: Any) -> None:
    if not isinstance(native, str) or _ID.fullmatch(native) is None:
        raise malformed(f"the id {str(native)[:60]!r} is not 9 letters or digits")


def _pieces(raw: bytes) -> list[bytes]:
    """The texts of the items of a JSON list that is known to be exact."""
    return [text.encode() for text, _ in json_sequence(raw.decode().strip()[1:-1], ",")]


def _read(body: Body) -> Attempt:
    markers = [part for part in body if isinstance(part, str)]
    if markers not in ([_ARGS], [_CALL_ID, _ARGS]):
        raise malformed("it must be the name, perhaps [CALL_ID] and an id, then [ARGS] and the arguments")
    first, args = body.index(markers[0]), body.index(_ARGS)
    native = text_of(raw_of(body[first + 1 : args])) if len(markers) == 2 else None
    name = text_of(raw_of(body[:first])).strip(" \t\r\n")
    if native is not None:
        _check_id(native)
    if not name:
        raise Refused(ParseStatus.MISSING_NAME, f"no name stands before {markers[0]}", native_id=native)
    if _NAME.fullmatch(name) is None:
        raise malformed(f"{name[:60]!r} is no name", native_id=native)
    return json_arguments(text_of(raw_of(body[args + 1 :])), name, native)
