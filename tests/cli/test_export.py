"""`rollbook export`: the file, the account, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.cli_made import SAID, document, made_run, refused, rollbook
from tests.run.run_made import script


def test_samples_go_to_the_file_and_the_account_to_the_screen(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    result = rollbook("export", folder, "--to", "jsonl", tmp_path / "out.jsonl")
    assert result.exit_code == 0
    assert "samples written" in result.stdout
    assert len((tmp_path / "out.jsonl").read_text().splitlines()) == 4


def test_json_is_the_report_that_lies_beside_the_file(tmp_path: Path) -> None:
    found = document(rollbook("export", made_run(tmp_path), "--to", "jsonl", tmp_path / "out.jsonl", "--json"))
    assert found == json.loads((tmp_path / "out.jsonl.report.json").read_text())
    assert (found["samples"], found["captured"]) == (4, found["trained"])


def test_parquet_is_a_form(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    assert rollbook("export", made_run(tmp_path), "--to", "parquet", tmp_path / "out.parquet").exit_code == 0


def test_a_file_that_is_there_stays_unless_told(tmp_path: Path) -> None:
    folder, out = made_run(tmp_path), tmp_path / "out.jsonl"
    out.write_text("mine")
    assert "exists" in refused(rollbook("export", folder, "--to", "jsonl", out))
    assert out.read_text() == "mine"
    assert rollbook("export", folder, "--to", "jsonl", out, "--overwrite").exit_code == 0


def test_a_run_without_a_vote_says_what_is_trained_and_where_to_look(tmp_path: Path) -> None:
    policy, folder = script(tmp_path / "m", *SAID), tmp_path / "run"
    rollbook("run", "test-raises", "--policy", policy, "--tasks", "1", "--out", folder)
    message = refused(rollbook("export", folder, "--to", "jsonl", tmp_path / "out.jsonl"))
    assert "gives a sample: 4 no_vote. Only rollouts that vote are trained" in message
    assert "show RUN ID" in message


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "csv", "out"), "no form 'csv'"),
        (("--to", "jsonl", "no/such/folder/out"), "its folder does not exist"),
        (
            ("--to", "jsonl", "out", "--max-tokens", "1"),
            "no rollout of this batch gives a sample: 4 over_length. Raise the limit",
        ),
        (("out",), "Missing option '--to'"),
    ],
)
def test_what_cannot_be_written_says_why(tmp_path: Path, words: tuple[str, ...], says: str) -> None:
    assert says in refused(rollbook("export", made_run(tmp_path), *words))


def test_logprobs_of_another_distribution_are_refused_unless_told(tmp_path: Path) -> None:
    policy, folder = script(tmp_path / "m", *SAID), tmp_path / "run"
    rollbook("run", "test-double", "--policy", policy, "--tasks", "1", "--out", folder, "--temperature", "0.5")
    out = tmp_path / "out.jsonl"
    assert "allow unfit logprobs" in refused(rollbook("export", folder, "--to", "jsonl", out))
    assert not out.exists()
    found = document(rollbook("export", folder, "--to", "jsonl", out, "--allow-unfit-logprobs", "--json"))
    assert found["unfit_samples"] == found["samples"] == 4
