"""A dozen real kills; `tests/slow/kill_storm.py` does hundreds."""

from __future__ import annotations

from pathlib import Path

from tests.slow.kill_storm import run_storm


def test_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    storm = run_storm(tmp_path / "run", kills=12, seed=7)
    assert storm.problems == []
    assert storm.sealed
    assert storm.nodes
