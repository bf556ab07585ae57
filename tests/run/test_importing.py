"""A foreign file becomes a run: whole or not at all, the same each time."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rollbook import audit, export, import_traces, open_run
from rollbook.errors import StoreError, UsageError
from rollbook.run import check_folder, standing
from rollbook.run.config import RunConfig
from tests.export.importers.imported import DATA, FORMS, lines


@pytest.mark.parametrize("name", FORMS)
def test_every_form_becomes_a_run_that_opens(name: str, tmp_path: Path) -> None:
    report = import_traces(DATA / name, None, tmp_path / "run")
    source = open_run(tmp_path / "run")
    traces = list(source.traces())
    assert (report.form, report.guessed, len(traces)) == (FORMS[name], True, report.rollouts)
    assert source.report.clean
    assert report.text_only == sum(not trace.head.tokens for trace in traces)
    assert report.without_reward == sum(trace.reward is None for trace in traces)
    assert {trace.head.run for trace in traces} == {report.run}
    assert standing(source) is None, "nothing was planned"
    assert audit(source).rollouts == len(traces)


def test_the_same_file_is_the_same_run(tmp_path: Path) -> None:
    one, two = (import_traces(DATA / "slime.pt", "slime", tmp_path / name) for name in "ab")
    assert (one.run, open_run(tmp_path / "a").rollouts()) == (two.run, open_run(tmp_path / "b").rollouts())
    other = import_traces(DATA / "verl.jsonl", None, tmp_path / "c")
    assert other.run != one.run


def test_token_exact_runs_are_exported(tmp_path: Path) -> None:
    import_traces(DATA / "slime.pt", None, tmp_path / "run")
    source = open_run(tmp_path / "run")
    with pytest.raises(UsageError, match="not of the distribution that was sampled"):
        export(source, "jsonl", tmp_path / "out")
    export(source, "jsonl", tmp_path / "out", allow_unfit_logprobs=True)
    row = json.loads((tmp_path / "out").read_text().splitlines()[0])
    assert (row["token_ids"], row["loss_mask"]) == ([5, 6, 7, 10, 2], [0, 0, 0, 1, 1])
    assert (row["policy_version"], row["advantage"]) == ([-1, -1, -1, 4, 4], None)


def test_a_bad_row_leaves_nothing(tmp_path: Path) -> None:
    good = (DATA / "verl.jsonl").read_text().splitlines()
    path = lines(tmp_path / "d", *good, "{")
    with pytest.raises(UsageError, match="d, line 5: it is no JSON"):
        import_traces(path, "verl", tmp_path / "runs" / "run")
    assert not list((tmp_path / "runs").iterdir())
    report = import_traces(path, "verl", tmp_path / "runs" / "run", skip_bad=True)
    assert (report.rows, report.rollouts, report.skipped) == (5, 4, 1)
    assert [entry.name for entry in (tmp_path / "runs").iterdir()] == ["run"]


def test_a_folder_with_something_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "mine").write_text("")
    with pytest.raises(StoreError, match="not empty; choose a new folder"):
        import_traces(DATA / "slime.pt", None, tmp_path / "run")
    with pytest.raises(StoreError, match="cannot be made"):
        import_traces(DATA / "slime.pt", None, tmp_path / "run" / "mine" / "run")
    assert [entry.name for entry in (tmp_path / "run").iterdir()] == ["mine"]


def test_an_empty_folder_may_be_the_run_s(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    import_traces(DATA / "slime.pt", None, tmp_path / "run")
    assert len(open_run(tmp_path / "run")) == 7


def test_a_run_needs_a_place() -> None:
    with pytest.raises(UsageError, match="needs a new folder"):
        import_traces(DATA / "slime.pt")


def test_an_import_is_never_resumed(tmp_path: Path) -> None:
    import_traces(DATA / "slime.pt", None, tmp_path / "run")
    config = RunConfig(environment="calculator", policy="local", tasks=1, group=1)
    with pytest.raises(UsageError, match="can be read, but not resumed"):
        check_folder(config, tmp_path / "run", resume=True, allow_changed=False)
