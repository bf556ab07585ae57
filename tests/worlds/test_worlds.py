"""All shipped worlds: they conform, and their names cost nothing."""

from __future__ import annotations

import asyncio
import functools
import subprocess
import sys

import pytest

from rollbook.errors import UsageError
from rollbook.rollout.env_check import env_report
from rollbook.worlds import WORLDS, make, names

OPTIONS: list[tuple[str, dict[str, int]]] = [
    ("calculator", {}),
    ("calculator", {"difficulty": 1}),
    ("calculator", {"difficulty": 3}),
    ("code", {}),
    ("code", {"difficulty": 3}),
    ("copy", {}),
    ("copy", {"words": 1}),
    ("guess", {}),
]


@pytest.mark.parametrize(("name", "options"), OPTIONS)
@pytest.mark.parametrize("seed", [0, 7])
def test_every_world_conforms(name: str, options: dict[str, int], seed: int) -> None:
    solved = 2 if name == "code" else 16  # each of its solutions starts some thirty processes
    report = asyncio.run(env_report(functools.partial(make, name, **options), 16, seed, solved=solved))
    assert (report.findings, report.tasks, report.solved) == ((), 16, solved)


def test_every_world_is_tried_here_and_knows_its_name() -> None:
    assert set(WORLDS) <= set(names())
    assert {name for name, _ in OPTIONS} == set(WORLDS)
    assert [type(make(name)).name for name in WORLDS] == list(WORLDS)


def test_a_misspelt_world_is_named() -> None:
    with pytest.raises(UsageError, match="did you mean 'calculator'"):
        make("calculater")


def test_names_import_no_world() -> None:
    code = "import sys, rollbook.worlds; sys.exit(any(m.startswith('rollbook.worlds.') for m in sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
