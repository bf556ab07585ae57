"""The public face: exactly these names, each the thing itself whatever came before, and pyright sees the same."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import rollbook

PUBLIC = {
    "Ending",
    "EndingRules",
    "Environment",
    "Limits",
    "LoadedPolicy",
    "Rewards",
    "RollbookError",
    "RolloutSettings",
    "RunConfig",
    "Sampling",
    "ScriptedPolicy",
    "StalenessBound",
    "StepResult",
    "Task",
    "Trace",
    "UsageError",
    "advantages",
    "audit",
    "check_env",
    "check_exporter",
    "check_policy",
    "check_template",
    "export",
    "group",
    "import_traces",
    "load_policy",
    "load_renderer",
    "make",
    "open_run",
    "open_stream",
    "register",
    "rollout",
    "run",
    "tool",
}
ROOMS_AND_FUNCTIONS = ("audit", "export", "rollout", "run")


def test_the_public_names_are_exactly_these() -> None:
    assert set(rollbook._NAMES) == PUBLIC
    assert set(dir(rollbook)) >= PUBLIC
    assert set(rollbook.__all__) == PUBLIC


def test_type_checkers_see_the_same_names_from_the_same_rooms() -> None:
    tree = ast.parse(Path(rollbook.__file__).read_text())
    (block,) = [node for node in tree.body if isinstance(node, ast.If)]
    seen = {
        alias.asname: node.module for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names
    }
    assert seen == {name: f"rollbook.{room}" for name, room in rollbook._NAMES.items()}


@pytest.mark.parametrize("name", sorted(PUBLIC))
def test_each_name_is_there_and_public_in_its_room(name: str) -> None:
    room = importlib.import_module(f"rollbook.{rollbook._NAMES[name]}")
    assert vars(rollbook).get(name, rollbook.__getattr__(name)) is vars(room)[name]
    assert name in room.__all__


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        rollbook.nothing  # noqa: B018


@pytest.mark.parametrize("name", ROOMS_AND_FUNCTIONS)
@pytest.mark.parametrize("first", ["", "import rollbook.cli.run, rollbook.cli.audit; "])
def test_names_of_rooms_mean_the_function_whatever_came_first(name: str, first: str) -> None:
    code = f"{first}import rollbook.{name}, sys, rollbook; from rollbook import {name}; "
    check = (
        f"assert callable({name}) and {name} is rollbook.{name}; assert sys.modules['rollbook.{name}'] is not {name}"
    )
    subprocess.run([sys.executable, "-c", code + check], check=True)
