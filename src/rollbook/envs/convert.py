"""The one conversion of what a tool returns to the text that the policy reads.

- text stays as it is; empty text stays empty.
- ``bytes`` are read as UTF-8; where they are not UTF-8 the text shows the odd bytes as ``\\xff``, and the exact bytes
  are kept beside it.
- everything else is written as JSON: numbers, ``true``, ``null`` (also for a tool that returns nothing), lists, tuples,
  dicts with text keys, dataclasses and msgspec structs as objects.
- what JSON cannot say is an error, never a guess: NaN and infinities, sets, keys that are no text, other objects.
- so are content blocks that hold an image, sound, a video or a file: as JSON they would be noise to the model.

The type that the tool returned is kept by name. A template never sees anything but text.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import msgspec

from rollbook.errors import RollbookError

__all__ = ["NotConvertible", "ToolText", "cut_text", "plain_json", "to_text"]

_MEDIA = frozenset(
    {"image", "image_url", "input_image", "audio", "audio_url", "input_audio", "video", "video_url", "file"}
    | {"input_file", "document", "resource"}
)
_PAYLOADS = frozenset(
    {"data", "source", "image", "image_url", "audio", "audio_url", "input_audio", "video", "video_url"}
    | {"file", "file_id", "file_data", "resource", "blob"}
)
MAX_DEPTH = 64
"""How deep containers may be nested."""


class NotConvertible(RollbookError):
    """The value has no text; the message says where in it and why."""


@dataclass(frozen=True, slots=True)
class ToolText:
    """A tool's return value as text."""

    text: str
    value_type: str
    """The name of the Python type that was returned."""
    raw: bytes | None = None
    """The exact bytes where they are not valid UTF-8."""


def to_text(value: object) -> ToolText:
    """`value` as text, by the rules of this module. Raises `NotConvertible`."""
    value_type = type(value).__name__
    match value:
        case str():
            return ToolText(str.__str__(value), value_type)
        case bytes() | bytearray():
            return _from_bytes(bytes(value), value_type)
        case _:
            _refuse_media(value)
            return ToolText(_as_json(plain_json(value)), value_type)


def _refuse_media(value: object) -> None:
    """Refuse a content block, alone or in a list, that is not text. A block has a type and its payload beside it; other
    data with a ``type`` is data."""
    listed = isinstance(value, list | tuple)
    blocks = cast("Sequence[object]", value) if listed else (value,)
    for index, block in enumerate(blocks):
        if not isinstance(block, dict):
            continue
        fields = cast("dict[object, object]", block)
        kind = fields.get("type")
        if isinstance(kind, str) and kind in _MEDIA and not _PAYLOADS.isdisjoint(fields):
            where = f"value[{index}]" if listed else "value"
            raise NotConvertible(f"{where}: a block of type {kind!r}; only text can be shown to the model")


def _as_json(plain: Any) -> str:
    try:
        return json.dumps(plain, ensure_ascii=False, allow_nan=False)
    except ValueError as error:  # Python writes no number of more than some thousand digits
        raise NotConvertible(str(error)) from error


def _from_bytes(raw: bytes, value_type: str) -> ToolText:
    try:
        return ToolText(raw.decode(), value_type)
    except UnicodeDecodeError:
        return ToolText(raw.decode(errors="backslashreplace"), value_type, raw)


def plain_json(value: object, where: str = "value", depth: int = 0) -> Any:
    """`value` as plain JSON data: dict, list, str, int, float, bool, None. Raises `NotConvertible`."""
    if depth > MAX_DEPTH:
        raise NotConvertible(f"{where[:80]}: nested deeper than {MAX_DEPTH}, or a cycle")
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            if not math.isfinite(value):
                raise NotConvertible(f"{where}: {value} is not a JSON number")
            return value
        case dict():
            return _object(cast("dict[object, object]", value), where, depth)
        case list() | tuple():
            items = cast("list[object] | tuple[object, ...]", value)
            return [plain_json(item, f"{where}[{index}]", depth + 1) for index, item in enumerate(items)]
        case msgspec.Struct():
            return _object(cast("dict[object, object]", msgspec.structs.asdict(value)), where, depth)
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
            return _object(cast("dict[object, object]", fields), where, depth)
        case _:
            raise NotConvertible(f"{where}: JSON has no form for {type(value).__name__}")


def _object(items: dict[object, object], where: str, depth: int) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    for key, item in items.items():
        if not isinstance(key, str):
            raise NotConvertible(f"{where}: the key {key!r} is not text")
        plain[str.__str__(key)] = plain_json(item, f"{where}.{key}", depth + 1)
    return plain


def cut_text(text: str, limit: int | None) -> str:
    """`text` with its middle left out where it is longer than `limit` characters (None: no limit).

    The cut is visible: a line between head and tail says how many of how many characters are missing.
    """
    if limit is None or len(text) <= limit:
        return text
    head = limit - limit // 2
    tail = limit - head
    missing = len(text) - limit
    return f"{text[:head]}\n[... {missing} of {len(text)} characters left out ...]\n{text[len(text) - tail :]}"
