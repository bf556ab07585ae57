"""Opening a stored run for reading."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollbook import open_run
from rollbook.errors import StoreError
from rollbook.run import RunConfig, run
from tests.run.run_made import CALL, loaded


def test_a_run_is_read_by_its_folder_while_nobody_holds_it(tmp_path: Path) -> None:
    config = RunConfig(environment="test-double", tasks=1, group=2)
    asyncio.run(run(config, tmp_path / "run", policy=loaded(tmp_path / "m", CALL, "It is 8.")))
    source = open_run(str(tmp_path / "run"))
    assert len(source) == len(list(source.traces())) == len(list(source.summaries())) == 2
    assert source.get(source.rollouts()[0]).sealed


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="not a Rollbook run"):
        open_run(tmp_path)
