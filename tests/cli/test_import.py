"""`rollbook import`, and what the other commands make of the run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.cli_made import document, refused, rollbook
from tests.export.importers.imported import DATA, FORMS, lines


def test_a_file_becomes_a_run_and_is_told_of(tmp_path: Path) -> None:
    result = rollbook("import", DATA / "slime.pt", "--out", tmp_path / "run")
    assert result.exit_code == 0
    assert "slime, as the file tells" in result.stdout
    assert "7" in result.stdout


@pytest.mark.parametrize("name", FORMS)
def test_show_and_audit_read_it(name: str, tmp_path: Path) -> None:
    found = document(rollbook("import", DATA / name, "--from", FORMS[name], "--out", tmp_path / "run", "--json"))
    assert (found["form"], found["guessed"]) == (FORMS[name], False)
    assert rollbook("show", tmp_path / "run").exit_code == 0
    assert rollbook("show", tmp_path / "run", "000000").exit_code == 0
    lost = name == "verifiers_legacy.jsonl"
    code = 1 if lost else 2 if found["sampled"] == 0 else 0
    assert rollbook("audit", tmp_path / "run").exit_code == code


def test_skipped_rows_are_told(tmp_path: Path) -> None:
    path = lines(tmp_path / "d", *(DATA / "verl.jsonl").read_text().splitlines(), "{")
    assert "d, line 5: it is no JSON" in refused(rollbook("import", path, "--out", tmp_path / "run"))
    result = rollbook("import", path, "--out", tmp_path / "run", "--skip-bad")
    assert "Skipped line 5: it is no JSON" in result.stderr


def test_a_form_that_is_not_told_is_asked_for(tmp_path: Path) -> None:
    message = refused(rollbook("import", lines(tmp_path / "d", {"a": 1}), "--out", tmp_path / "run"))
    assert "does not tell what form it has; name it (--from slime" in message


def test_conversations_are_a_form_of_export(tmp_path: Path) -> None:
    rollbook("import", DATA / "verifiers.jsonl", "--out", tmp_path / "run")
    words = ("export", tmp_path / "run", "--to", "sft", tmp_path / "out")
    result = rollbook(*words, "--threshold", "1")
    assert "conversations written" in result.stdout
    assert "rejection, reward from 1" in result.stdout
    found = document(rollbook(*words, "--overwrite", "--json", "--split", "--dedupe", "task"))
    assert (found["select"], found["split"], found["conversations"]) == ("best", True, 1)


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--to", "jsonl", "out", "--threshold", "1"), "--threshold goes with --to sft only"),
        (("--to", "jsonl", "out", "--split", "--select", "best"), "--split, --select goes with --to sft only"),
        (("--to", "sft", "out", "--max-tokens", "5"), "are about samples"),
        (("--to", "sft", "out", "--allow-unfit-logprobs"), "are about samples"),
        (("--to", "sft", "out", "--threshold", "9"), "left to imitate"),
    ],
)
def test_options_go_with_their_form(words: tuple[str, ...], says: str, tmp_path: Path) -> None:
    rollbook("import", DATA / "verifiers.jsonl", "--out", tmp_path / "run")
    assert says in refused(rollbook("export", tmp_path / "run", *words))
