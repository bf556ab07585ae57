"""The real model, fetched once into the repository's ignored cache folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.models import ModelFiles, load_model

CACHE = Path(__file__).parent.parent / ".cache" / "rollbook"


@pytest.fixture(scope="session")
def smollm2() -> ModelFiles:
    return load_model("smollm2-135m", CACHE)
