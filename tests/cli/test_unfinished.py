"""A run that is not finished says so wherever it is read."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.cli.unfinished import tell_unfinished
from rollbook.run import open_run
from tests.run.test_runner import go, stop_after


def test_what_is_missing_is_told_until_it_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop_after(tmp_path / "run", 5)
    tell_unfinished(open_run(tmp_path / "run"))
    told = capsys.readouterr()
    assert "This run is not finished: " in told.err
    assert "of 12 rollouts are done" in " ".join(told.err.split())
    assert told.out == ""
    go(tmp_path / "run", resume=True)
    tell_unfinished(open_run(tmp_path / "run"))
    assert capsys.readouterr() == ("", "")
