"""Fixtures of the room; the tokenizers and templates behind them are in `render_families`."""

from __future__ import annotations

import pytest
from render_families import SMALL, small

from rollbook.render import ChatRenderer


@pytest.fixture(params=SMALL)
def renderer(request: pytest.FixtureRequest) -> ChatRenderer:
    """Each stock template with each kind of small tokenizer."""
    name, marked = SMALL[request.param]
    return small(name, marked=marked)
