"""`rollbook train`: what it prints, the document, and what it refuses before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollbook.run.training import PICTURE, REPORT
from tests.cli.cli_made import document, refused, rollbook

SMALL = ("calculator", "--option", "difficulty=1", "--tasks", "2", "--group", "2", "--max-turns", "1")


def test_the_document_is_the_report_that_lies_in_the_folder(tmp_path: Path) -> None:
    done = rollbook("train", *SMALL, "--steps", "1", "--max-generation", "4", "--out", tmp_path / "run", "--json")
    assert done.exit_code == 0, done.output
    told = document(done)
    assert told.pop("run") == str(tmp_path / "run")
    assert told == json.loads((tmp_path / "run" / REPORT).read_text())
    assert (tmp_path / "run" / PICTURE).is_file()
    assert "step 1 of 1" in done.stderr


def test_steps_that_were_not_made_are_told_of(tmp_path: Path) -> None:
    often = ("tests.run.test_training:OftenSpeechless", "--tasks", "1", "--group", "2", "--steps", "3")
    done = rollbook("train", *often, "--policy", "local:tiny", "--max-generation", "4", "--out", tmp_path / "run")
    assert done.exit_code == 0, done.output
    assert "Only 1 of 3 steps were made" in done.stderr


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("--policy", "llamacpp:http://127.0.0.1:1", "--tokenizer", "local:tiny"), "nobody can give new weights"),
        (("--policy", "vllm:http://127.0.0.1:1"), "cannot be reached"),
        (("--policy", "vllm:http://127.0.0.1:1", "--tokenizer", "local:tiny"), "did not take the weights"),
        (("--estimator", "reinforce_pp"), "reinforce_pp"),
        (("--lr", "0"), "--lr"),
        (("--option", "difficulty"), "KEY=VALUE"),
    ],
)
def test_what_cannot_train_is_refused_with_a_remedy(words: tuple[str, ...], what: str, tmp_path: Path) -> None:
    assert what in refused(rollbook("train", *SMALL, *words, "--out", tmp_path / "run"))
    assert not list(tmp_path.iterdir()), "the same command can be given again"
