"""A run that is not finished says so wherever it is read."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rollbook.cli.unfinished import tell_unfinished
from rollbook.rollout import LoadedPolicy
from rollbook.run import open_run, open_stream
from tests.rollout.made import SMOLLM
from tests.run.test_runner import CONFIG, ByMember, go, stop_after


def test_a_stream_goes_on_as_a_stream(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    async def take_one() -> None:
        policy = LoadedPolicy(ByMember(), SMOLLM.renderer)
        async with open_stream(CONFIG, tmp_path / "run", policy=policy) as stream:
            await anext(aiter(stream))

    asyncio.run(take_one())
    tell_unfinished(open_run(tmp_path / "run"), tmp_path / "run")
    told = " ".join(capsys.readouterr().err.split())
    assert "`open_stream(..., resume=True)`, with the same arguments, goes on." in told


def test_what_is_missing_is_told_until_it_is_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    stop_after(tmp_path / "run", 5)
    tell_unfinished(open_run(tmp_path / "run"), tmp_path / "run")
    told = capsys.readouterr()
    assert "This run is not finished: " in told.err
    assert "of 12 rollouts are done" in " ".join(told.err.split())
    assert f"`rollbook run ... --out {tmp_path / 'run'} --resume`, with the same arguments, goes on." in (
        " ".join(told.err.split())
    )
    assert told.out == ""
    tell_unfinished(open_run(tmp_path / "run"), "s3://bucket/run")
    copied = " ".join(capsys.readouterr().err.split())
    assert "--out FOLDER --resume`, with the same arguments, goes on in the folder of which this is the copy." in copied
    go(tmp_path / "run", resume=True)
    tell_unfinished(open_run(tmp_path / "run"), tmp_path / "run")
    assert capsys.readouterr() == ("", "")
