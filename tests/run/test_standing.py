"""What is missing of a run, counted from its folder alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ConfigError
from rollbook.run import RunConfig, open_run, selection, standing
from rollbook.store import RunWriter, read_manifest, write_manifest
from rollbook.trace import Ending, Reason
from tests.cli.cli_made import rollbook
from tests.run.run_made import small_trace
from tests.run.test_runner import CONFIG, go, rows, stop_after


def test_a_run_that_was_stopped_lacks_members_and_a_resume_brings_them(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", 9)
    found = standing(open_run(tmp_path / "run"))
    assert found is not None
    reasons = Counter(row.reason for row in rows(tmp_path / "run"))
    assert reasons[Reason.INTERRUPTED] > 0, "some were in flight"
    assert (found.planned, found.finished) == (CONFIG.tasks * CONFIG.group, reasons[Reason.FINAL_ANSWER])
    done = Counter(row.group for row in rows(tmp_path / "run") if row.reason is Reason.FINAL_ANSWER)
    assert 0 < found.closed <= sum(count == CONFIG.group for count in done.values()) < len(done)
    assert found.groups == CONFIG.tasks
    go(tmp_path / "run", resume=True)
    whole = standing(open_run(tmp_path / "run"))
    assert whole is not None
    assert (whole.missing, whole.closed) == (0, CONFIG.tasks)


def test_of_imported_traces_nobody_knows_what_was_planned(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        trace = small_trace("a")
        trace.end(Ending(Reason.FINAL_ANSWER))
        writer.seal(trace)
    assert standing(open_run(tmp_path / "run")) is None


def test_a_run_is_read_whose_configuration_would_be_refused_today(tmp_path: Path) -> None:
    stop_after(tmp_path / "run", 9)
    before, groups = standing(open_run(tmp_path / "run")), selection(open_run(tmp_path / "run")).groups
    assert groups.resampled == 0
    manifest = read_manifest(tmp_path / "run")
    manifest.config["asked"]["groups"] = {"enough": 1, "min_used": 9}
    with pytest.raises(ConfigError, match="below min_used"):
        msgspec.convert(manifest.config["asked"], RunConfig)
    write_manifest(tmp_path / "run", manifest)
    assert standing(open_run(tmp_path / "run")) == before
    assert selection(open_run(tmp_path / "run")).groups == groups
    for words in (("show",), ("audit",), ("export", "--to", "jsonl")):
        place = [str(tmp_path / "run"), *words[1:], *([str(tmp_path / "out.jsonl")] if words[1:] else [])]
        assert rollbook(words[0], *place).exit_code == 0
