"""`rollbook envs`: every name, with its options."""

from __future__ import annotations

from rollbook.worlds import WORLDS, names, register
from tests.cli.cli_made import document, rollbook


def test_every_name_is_listed_with_its_options() -> None:
    rows = {row["name"]: row for row in document(rollbook("envs", "--json"))["envs"]}
    assert tuple(rows) == names()
    assert set(WORLDS) <= set(rows)
    assert rows["calculator"]["options"] == "difficulty: int = 2"
    assert rows["calculator"]["about"].startswith("Arithmetic with a calculator tool")


def test_the_table_fits() -> None:
    lines = rollbook("envs").stdout.splitlines()
    assert max(map(len, lines)) <= 100
    assert any(line.split()[:1] == ["calculator"] for line in lines)


def test_one_that_cannot_be_imported_hides_no_other() -> None:
    register("test-never-imported", "no_such_module_at_all:Thing")
    found = {row["name"]: row for row in document(rollbook("envs", "--json"))["envs"]}
    assert found["test-never-imported"]["about"].startswith("cannot be used: environment 'no_such_module_at_all:Thing'")
    assert found["calculator"]["about"].count("cannot be used") == 0
