"""The report of the trainers' tests: a skip that nobody wrote down is a failure. No trainer is imported here."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tools.trainers_env import ENVIRONMENTS, copy_source

from tests.slow.trainers.__main__ import HERE, SKIPS, listed, main, unlisted

ROWS = json.loads(SKIPS.read_text())


def test_a_skip_needs_its_place_on_the_list() -> None:
    outcomes = {"live_slime.py": "skipped", "live_verl.py::test_x": "skipped", "live_verl.py::test_y[a]": "passed"}
    assert unlisted(outcomes, listed(ROWS, sources=False)) == ["live_verl.py::test_x"]
    assert unlisted(outcomes, listed(ROWS, sources=True)) == ["live_slime.py", "live_verl.py::test_x"]


def test_every_listed_skip_has_its_reason_and_names_tests_that_are_there() -> None:
    files = {path.name for path in HERE.glob("live_*.py")}
    for row in ROWS:
        assert {"tests", "reason"} <= row.keys() <= {"tests", "reason", "without"}
        assert row["reason"].endswith(".")
        assert row["tests"].partition("*")[0].partition("::")[0] in files


def test_each_file_runs_in_one_environment() -> None:
    named = [file for environment in ENVIRONMENTS.values() for file in environment.files]
    assert sorted(named) == sorted(path.name for path in HERE.glob("live_*.py"))


def test_an_environment_that_is_not_there_fails(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(FileNotFoundError):
        main(tmp_path, ["verl"])


def test_a_source_is_copied_at_its_commit_and_left_where_no_clone_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = ENVIRONMENTS["verl"].sources[0]
    monkeypatch.delenv("ROLLBOOK_TRAINER_SOURCES", raising=False)
    copy_source(tmp_path, source)
    assert not (tmp_path / source.name).exists()
    monkeypatch.setenv("ROLLBOOK_TRAINER_SOURCES", str(tmp_path))
    with pytest.raises(SystemExit, match="no clone of THUDM/slime"):
        copy_source(tmp_path, source)


def test_the_kept_report_is_of_a_full_run() -> None:
    kept = json.loads((HERE.parents[2] / "docs" / "reports" / "trainers.json").read_text())
    assert kept["exit_code"] == 0
    assert kept["result"]["counts"]["failed"] == 0
    assert kept["result"]["counts"]["passed"] > 40
    assert kept["result"]["unlisted_skips"] == []
    assert kept["result"]["environments"]["verl"]["verl"] == "0.9.1"
