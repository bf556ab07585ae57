"""Tool specs."""

from __future__ import annotations

from rollbook.trace import ToolSpec


def test_the_form_that_templates_expect() -> None:
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}}
    spec = ToolSpec(name="f", description="does it", parameters=schema, stop=True)
    function = {"name": "f", "description": "does it", "parameters": schema}
    assert spec.openai() == {"type": "function", "function": function}
