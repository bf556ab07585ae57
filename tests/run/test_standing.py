"""What is missing of a run, counted from its folder alone."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from rollbook.run import open_run, standing
from rollbook.store import RunWriter
from rollbook.trace import Ending, Reason
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
