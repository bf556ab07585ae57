"""Mutants name source text. Where the source moved on, a mutant takes nothing away and proves nothing."""

from __future__ import annotations

import importlib
from collections import Counter
from pathlib import Path

import pytest
from tests.mutants import Mutant

ROOT = Path(__file__).parents[2]
ROOMS = sorted(path.stem for path in (ROOT / "tests" / "mutants").glob("*.py") if path.stem != "__init__")


def mutants(room: str) -> list[Mutant]:
    return importlib.import_module(f"tests.mutants.{room}").MUTANTS


@pytest.mark.parametrize("room", ROOMS)
def test_each_snippet_stands_once_in_its_file(room: str) -> None:
    found = {m.name: (ROOT / "src" / "rollbook" / m.file).read_text().count(m.snippet) for m in mutants(room)}
    assert {name: count for name, count in found.items() if count != 1} == {}


@pytest.mark.parametrize("room", ROOMS)
def test_each_name_is_used_once(room: str) -> None:
    assert max(Counter(mutant.name for mutant in mutants(room)).values()) == 1


@pytest.mark.parametrize("room", ROOMS)
def test_each_named_test_is_there(room: str) -> None:
    for mutant in mutants(room):
        path, _, name = mutant.test.partition("::")
        assert f"def {name.partition('[')[0].split('::')[-1]}(" in (ROOT / path).read_text(), mutant.name
