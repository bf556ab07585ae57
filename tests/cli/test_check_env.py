"""`rollbook check env`: what it says, the document, the exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.cli_made import document, refused, rollbook

WORLD = """
from rollbook import Environment, Task
from rollbook.envs import Solutions, says

class Base(Environment):
    def tasks(self, count, seed=0):
        return [Task(id=f"{seed}-{n}", prompt="p", target="yes") for n in range(count)]

class Unknown(Base):
    pass

class Generous(Base):
    def solutions(self, task):
        return Solutions((says("yes"),))
    async def score(self, trace):
        print("scoring")
        return 1.0
"""


@pytest.fixture(autouse=True)
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checked_world.py").write_text(WORLD)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_a_shipped_world_conforms_and_its_solutions_are_replayed() -> None:
    done = rollbook("check", "env", "calculator", "--option", "difficulty=3", "--tasks", "5")
    assert done.exit_code == 0
    assert "calculator conforms: 11 checks over 5 tasks." in done.stdout
    assert "Replayed solutions of 5 tasks: gold scored 1 each time, a no-op 0." in done.stdout
    found = document(rollbook("check", "env", "guess", "--json"))
    assert found == {"env": "guess", "conforms": True, "findings": [], "tasks": 8, "solved": 8}


def test_a_scorer_that_rewards_nothing_done_exits_1() -> None:
    done = rollbook("check", "env", "checked_world:Generous", "--tasks", "1")
    assert done.exit_code == 1
    assert "noop" in done.stdout
    assert "does not conform: 1 finding." in done.stdout
    done = rollbook("check", "env", "checked_world:Generous", "--tasks", "2", "--json")
    assert done.exit_code == 1
    found = document(done)
    assert [each["check"] for each in found["findings"]] == ["noop", "noop"]


def test_without_solutions_it_says_that_the_scorer_was_held_to_nothing() -> None:
    done = rollbook("check", "env", "checked_world:Unknown")
    assert done.exit_code == 0
    assert "It knows no solutions" in done.stdout


def test_what_cannot_be_checked_exits_2() -> None:
    assert "did you mean 'calculator'" in refused(rollbook("check", "env", "calculater"))
    assert "no option 'hard'" in refused(rollbook("check", "env", "calculator", "--option", "hard=1"))
    assert "write KEY=VALUE" in refused(rollbook("check", "env", "calculator", "--option", "hard"))
