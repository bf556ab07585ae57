"""`rollbook explain`: spans and advantage of a rollout, one branch of it, and what a run would save."""

from __future__ import annotations

from pathlib import Path

from tests.cli.cli_made import document, made_run, refused, rollbook


def test_a_rollout_is_explained_span_by_span(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    shown = rollbook("explain", folder, "0000-0").stdout
    assert max(map(len, shown.splitlines())) <= 100
    for words in ("compared with", "estimator", "The policy sampled it", "branch 0:", "weight 1.000"):
        assert words in shown
    told = document(rollbook("explain", folder, "0000-0", "--json"))
    assert told["captured"] == told["trained"]
    spans = told["branches"][0]["spans"]
    assert sum(span["end"] - span["start"] for span in spans if span["trains"]) == told["trained"]
    assert [member["rollout"][-6:] for member in told["advantage"]["members"]] == ["0000-0", "0000-1"]


def test_a_branch_is_named_behind_a_colon(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    told = document(rollbook("explain", folder, "0000-0:0", "--json"))
    assert [branch["branch"] for branch in told["branches"]] == [0]
    assert "has no branch 1; it has 1" in refused(rollbook("explain", folder, "0000-0:1"))
    assert "no rollout" in refused(rollbook("explain", folder, "9999-0:0"))


def test_a_limit_is_applied_as_in_the_export(tmp_path: Path) -> None:
    shown = rollbook("explain", made_run(tmp_path), "0000-0", "--max-tokens", "3").stdout
    assert "does not train: over_length" in shown
    assert "Its branch is longer than the limit." in shown


def test_a_run_tells_what_shared_prefixes_would_save(tmp_path: Path) -> None:
    folder = made_run(tmp_path)
    shown = rollbook("explain", folder).stdout
    assert "one rollout" in shown
    assert "one group" in shown
    found = document(rollbook("explain", folder, "--json"))
    assert found["within_rollouts"]["sequences"] == 4
    assert found["within_groups"]["tree_tokens"] < found["within_groups"]["flat_tokens"]
