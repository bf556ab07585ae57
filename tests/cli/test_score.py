"""`rollbook score`: a run scored again, and what other rules would make of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollbook.run import open_run
from rollbook.store import RunWriter
from rollbook.trace import facts
from tests.cli.cli_made import document, made_run, refused, rollbook
from tests.run.judged import WORKED_EXAMPLE, Scores, judged
from tests.run.run_made import script


@pytest.fixture(autouse=True)
def scores(monkeypatch: pytest.MonkeyPatch) -> dict[str, float]:
    """What the environment says now: the same as before."""
    now = {each.rollout: each.reward or 0.0 for each in WORKED_EXAMPLE}
    monkeypatch.setattr(Scores, "rewards", now)
    return now


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    judged(tmp_path / "run", WORKED_EXAMPLE, group=8)
    return tmp_path / "run"


def rules(tmp_path: Path, **plain: object) -> Path:
    (tmp_path / "rules.json").write_text(json.dumps(plain))
    return tmp_path / "rules.json"


def test_the_same_scorer_gives_the_same(folder: Path) -> None:
    shown = rollbook("score", folder)
    assert shown.exit_code == 0
    text = " ".join(shown.stdout.split())
    assert "same reward 6" in text
    assert "not scored 2" in text
    assert "stay 6 100.0 %" in text
    assert "Written as step 1; what was recorded before stays." in text
    assert document(rollbook("score", folder, "--json"))["step"] == 2


def test_another_scorer_shows_everywhere(folder: Path, scores: dict[str, float]) -> None:
    scores[WORKED_EXAMPLE[0].rollout] = -1.0
    found = document(rollbook("score", folder, "--json"))
    assert found["scored"] == {
        "same reward": 5,
        "another reward": 1,
        "a reward for the first time": 0,
        "no reward any more": 0,
        "scorer failed": 0,
        "not scored": 2,
    }
    assert found["effect"]["changes"] == {"flipped": 1, "vanished": 0, "appeared": 0, "resized": 5, "same": 0}
    rows = {row["rollout"]: row for row in document(rollbook("show", folder, "--json"))["rollouts"]}
    assert rows[WORKED_EXAMPLE[0].rollout]["reward"] == -1.0
    assert rows[WORKED_EXAMPLE[0].rollout]["advantage"] == pytest.approx(-7 / 6)
    shown = rollbook("show", folder, WORKED_EXAMPLE[0].rollout).stdout
    assert "reward -1.000" in shown
    one = document(rollbook("show", folder, WORKED_EXAMPLE[0].rollout, "--json"))
    assert one["tail"]["reward"] == -1.0


def test_what_if_writes_nothing_unless_told(folder: Path, tmp_path: Path) -> None:
    before = open_run(folder).annotations()
    shown = rollbook("score", folder, "--rules", rules(tmp_path, error={"reward": 0.0}))
    text = " ".join(shown.stdout.split())
    assert "appear, where there was none or 0 2 25.0 %" in text
    assert "sandbox_lost 2 2 retry(2), no attempt left 2 reward(0) 2 appeared" in text
    assert "Nothing was written; --keep does." in text
    assert max(map(len, shown.stdout.splitlines())) <= 100
    assert open_run(folder).annotations() == before
    kept = document(rollbook("score", folder, "--rules", tmp_path / "rules.json", "--keep", "--json"))
    assert (kept["step"], kept["scored"], kept["effect"]["shares"]["appeared"]) == (1, None, 0.25)
    assert facts.advantages(open_run(folder).annotations())[WORKED_EXAMPLE[6].rollout].advantage == -0.375


def test_another_estimator_may_need_the_whole_batch(folder: Path) -> None:
    found = document(rollbook("score", folder, "--estimator", "reinforce_pp", "--json"))
    assert (found["step"], found["effect"]["changes"]["resized"]) == (None, 6)
    assert "nobody in group" in refused(rollbook("score", folder, "--outcome-part", "right"))


def test_a_scorer_that_needs_more_than_the_trace_writes_nothing(folder: Path, scores: dict[str, float]) -> None:
    del scores[WORKED_EXAMPLE[1].rollout]
    before = open_run(folder).annotations()
    said = refused(rollbook("score", folder))
    assert "1 rollout that had a reward could not be scored again" in said
    assert open_run(folder).annotations() == before
    assert document(rollbook("score", folder, "--keep", "--json"))["scored"]["scorer failed"] == 1


def test_another_environment_scores_with_its_own_options(folder: Path) -> None:
    found = document(rollbook("score", folder, "--env", "test-scores", "--option", "extra=1", "--json"))
    assert (found["scored"]["another reward"], found["effect"]["changes"]["same"]) == (6, 6)


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--rules", "none.json"), "cannot be read"),
        (("--estimator", "grpo", "--env", "guess"), "score nothing: leave --env"),
        (("--env", "nowhere"), "nowhere"),
        (("--option", "depth=1"), "no option 'depth'"),
    ],
)
def test_what_cannot_be_done_is_said(folder: Path, words: tuple[str, ...], problem: str) -> None:
    assert problem in refused(rollbook("score", folder, *words))


def test_an_import_names_no_environment(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run", {}):
        pass
    assert "name it with --env ENV" in refused(rollbook("score", tmp_path / "run"))


def test_a_copy_in_an_object_store_is_not_written_to(folder: Path) -> None:
    assert "is a copy in an object store" in refused(rollbook("score", f"file://{folder}"))


def test_a_run_names_its_estimator_and_its_outcome(tmp_path: Path) -> None:
    folder = made_run(tmp_path, "--estimator", "rloo")
    assert {each.estimator for each in facts.advantages(open_run(folder).annotations()).values()} == {"rloo"}
    said = refused(rollbook("run", "test-double", "--estimator", "gdpo", "--out", tmp_path / "other"))
    assert "'gdpo' is not one of 'dr_grpo', 'grpo'" in said
    policy = script(tmp_path / "model", "It is 8.")
    words = ("--policy", policy, "--tasks", "1", "--group", "2", "--outcome-part", "right")
    assert "nobody in group" in refused(rollbook("run", "test-double", *words, "--out", tmp_path / "parts"))
