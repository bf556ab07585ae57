"""The page of the fake engine names everything that it has."""

from __future__ import annotations

import re
from dataclasses import fields

from msgspec.structs import fields as struct_fields

from rollbook.policy import testing
from rollbook.policy.testing import EngineShape, Fault, FaultPlan, Latency
from rollbook.policy.testing.__main__ import parser
from rollbook.policy.testing.server import _SPEECHES, FakeEngine
from tests.docs.blocks import ROOT
from tests.docs.test_tables import rows

PAGE = ROOT / "docs" / "howto" / "fake-engine.md"
INNER = {"Script", "ScriptFunction", "TextScript", "Fault", "Dialect"}
"""Names of types that the page tells by what they are."""


def test_every_fault_has_its_row() -> None:
    found = rows(PAGE, "| fault | what happens | what a client here makes of it |")
    assert [row[0] for row in found] == [str(fault) for fault in Fault]


def test_every_name_field_and_option_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    names = {*testing.__all__, *(field.name for field in fields(EngineShape))} - INNER
    names |= {field.name for kind in (FaultPlan, Latency) for field in struct_fields(kind)}
    names |= {option for action in parser()._actions for option in action.option_strings if option.startswith("--")}
    assert sorted(name for name in names - {"--help"} if not re.search(rf"{name}\b", text)) == []


def test_every_route_is_there() -> None:
    text = PAGE.read_text(encoding="utf-8")
    old = {"/get_model_info", "/get_server_info", "/completions", "/inference/v1/abort_requests"}
    for dialect in _SPEECHES:
        front = FakeEngine(dialect).front
        routes = {path for _, path in front._controls} | set(front._generations)
        assert sorted(route for route in routes - old if f"`{route}`" not in text) == [], dialect
