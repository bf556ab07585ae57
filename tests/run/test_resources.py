"""What a run shared: written beside it, added up when it goes on, shown in the report."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path

import pytest
from rich.console import Console

from rollbook.cli.report_view import show_resources
from rollbook.errors import StoreError
from rollbook.rollout import ResourceLimit, Resources
from rollbook.run import ResourceReport, read_resources, report, resource_report, write_resources
from rollbook.trace import MemorySink


def used(limit: int, entries: int) -> ResourceReport:
    """Of one worker, whose engine so many held at once."""

    async def scenario() -> ResourceReport:
        resources = Resources({"engine": ResourceLimit(limit=limit)})
        async with resources, asyncio.TaskGroup() as group:

            async def enter() -> None:
                async with resources.engine.slot():
                    await asyncio.sleep(0.03)

            for _ in range(entries):
                group.create_task(enter())
        return resource_report(resources.snapshot(), 1)

    return asyncio.run(scenario())


def test_what_goes_on_adds_up(tmp_path: Path) -> None:
    assert read_resources(tmp_path) is None
    first, second = used(2, 4), used(3, 3)
    write_resources(tmp_path, first)
    assert read_resources(tmp_path) == first
    write_resources(tmp_path, second)
    found = read_resources(tmp_path)
    assert found is not None
    engine = found.limiters[0]
    assert (engine.name, engine.limit, engine.peak, engine.entered) == ("engine", 3, 3, 7)
    assert engine.waited == pytest.approx(first.limiters[0].waited, abs=0.01)
    assert found.lag.count == first.lag.count + second.lag.count
    assert [file.name for file in tmp_path.iterdir()] == ["resources.json"]


def test_what_is_no_report_is_refused_with_the_remedy(tmp_path: Path) -> None:
    bounds = '"bounds": {"first": 0.0005, "factor": 1.4142135623730951, "classes": 40}'
    for lag in ('{"bounds": {"first": 1, "factor": 2, "classes": 3}}', f'{{{bounds}, "counts": [1, 2]}}', "2"):
        (tmp_path / "resources.json").write_text(f'{{"workers": 2, "limiters": [], "lag": {lag}}}')
        with pytest.raises(StoreError, match="if you delete it"):
            read_resources(tmp_path)
    (tmp_path / "resources.json").write_text(f'{{"workers": 2, "limiters": [], "lag": {{{bounds}}}}}')
    assert read_resources(tmp_path) is not None
    with pytest.raises(StoreError, match="cannot be written"):
        write_resources(tmp_path / "nowhere", used(1, 1))


def test_a_report_shows_who_waited_and_leaves_out_what_nobody_used() -> None:
    resources = used(2, 4)
    assert report(MemorySink(), resources).resources == resources
    out = Console(file=io.StringIO(), width=100, markup=False, highlight=False)
    show_resources(out, resources)
    assert isinstance(out.file, io.StringIO)
    text = out.file.getvalue()
    (row,) = [line.split() for line in text.splitlines() if line.startswith(" engine")]
    assert row[:6] == ["engine", "2", "0", "2", "0", "4"]
    assert "sandbox" not in text
    assert "99th percentile" in text
    assert "1 worker" in text
