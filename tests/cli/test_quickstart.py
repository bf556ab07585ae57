"""`tools/quickstart.py`: a folder that is free, whatever ran before."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

QUICKSTART = Path(__file__).parents[2] / "tools" / "quickstart.py"


def test_the_folder_is_the_first_free_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    free_folder = runpy.run_path(str(QUICKSTART))["free_folder"]
    for name in ("quickstart", "quickstart-2", "quickstart-3"):
        assert free_folder() == Path("runs") / name
        (tmp_path / "runs" / name).mkdir(parents=True)
