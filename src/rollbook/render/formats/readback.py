"""Does a format read what a template wrote? So the format of an unknown template is found, and that of a known one
proven."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from rollbook.render.formats.families import CallFormat
from rollbook.render.formats.reply import ReplyReader
from rollbook.trace.message import ParseStatus
from rollbook.trace.tools import ToolSpec

__all__ = ["reads_back"]


def reads_back(
    format: CallFormat,  # noqa: A002 (no other word says it)
    text: str,
    calls: Sequence[tuple[str, dict[str, Any]]],
    tools: Sequence[ToolSpec],
) -> bool:
    """True where `text`, an assistant's turn without its end-of-turn token, parses to exactly these calls, all `ok`.
    Values are compared with their types: 1, 1.0 and True are three."""
    said = ReplyReader(format, None, {}).parse_text(text, tools, inside_reasoning=False, cut=False, call_prefix="")
    found = [(call.name, call.arguments) for call in said.tool_calls]
    return all(call.status is ParseStatus.OK for call in said.tool_calls) and _spelled(found) == _spelled(calls)


def _spelled(calls: Sequence[tuple[str | None, dict[str, Any] | None]]) -> list[str]:
    return [json.dumps([name, arguments], sort_keys=True) for name, arguments in calls]
