"""Tools and ids that tests of the harmony format share."""

from __future__ import annotations

from rollbook.trace.tools import ToolSpec

ADD = ToolSpec(
    name="add",
    description="Adds two numbers.\nBoth are whole.",
    parameters={
        "type": "object",
        "properties": {"a": {"type": "integer", "description": "the first"}, "b": {"type": "integer", "default": 0}},
        "required": ["a"],
        "additionalProperties": False,
    },
)
NOW = ToolSpec(name="now", description="The time.", parameters={"type": "object", "properties": {}})

TEXT_END, RETURN, CONSTRAIN, CHANNEL, START, END, MESSAGE, CALL = (
    199_999,
    200_002,
    200_003,
    200_005,
    200_006,
    200_007,
    200_008,
    200_012,
)
