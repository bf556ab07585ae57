"""Where the examples run."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.models import ModelFiles
from tests.docs.blocks import ROOT


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, smollm2: ModelFiles) -> Path:
    """An empty working folder, in which the models of the test cache are the user's."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("HOME", str(ROOT))
    monkeypatch.setenv("COLUMNS", "100")
    return tmp_path
