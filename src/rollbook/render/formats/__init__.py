"""Strict parsing of replies, family by family (the rules stand in `rollbook.render.formats.reply`)."""

from rollbook.render.formats.families import REASONING, CallFormat, call_id, opens_reasoning
from rollbook.render.formats.readback import reads_back
from rollbook.render.formats.reply import ReplyReader

__all__ = ["REASONING", "CallFormat", "ReplyReader", "call_id", "opens_reasoning", "reads_back"]
