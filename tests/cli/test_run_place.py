"""Runs in object stores on the command line: written by `run --store`, read by whatever reads runs."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.cli.cli_made import document, made_run, refused, rollbook

pytest.importorskip("obstore")


def test_a_run_in_an_object_store_is_read_by_its_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"file://{tmp_path / 'bucket'}/demo"
    folder = made_run(tmp_path, "--store", url)
    rows = document(rollbook("show", url, "--json"))["rollouts"]
    assert rows == document(rollbook("show", folder, "--json"))["rollouts"]
    assert len(rows) == 4
    for words in ((), ("--selection",)):
        assert document(rollbook("show", url, *words, "--json"))["run"] == url
    assert f"no rollout of {url} has 'none' in its id; `rollbook show {url}` lists all" in (
        " ".join(refused(rollbook("show", url, "none")).split())
    )
    judged = [document(rollbook("audit", place, "--no-model", "--json")) for place in (url, folder)]
    assert judged[0] == judged[1]
    out = tmp_path / "samples.jsonl"
    assert document(rollbook("export", url, "--to", "jsonl", out, "--json"))["samples"] == 4
    assert len(out.read_text().splitlines()) == 4


def test_a_url_that_is_none_and_a_place_without_a_run_are_refused(tmp_path: Path) -> None:
    assert "known schemes" in refused(rollbook("show", "ftp://somewhere/run"))
    assert "no run" in refused(rollbook("show", f"file://{tmp_path}/nothing"))
    assert "does not exist" in refused(rollbook("show", tmp_path / "neither"))


def test_a_run_on_a_cluster_needs_workers_and_ray(tmp_path: Path) -> None:
    folder = made_run(tmp_path, name="model")
    policy = f"scripted:{tmp_path / 'model-model' / 'script.json'}"
    words = ("run", "tests.run.run_made:Double", "--policy", policy, "--out", tmp_path / "run", "--ray")
    assert folder.is_dir()
    assert "--workers" in refused(rollbook(*words))
    if importlib.util.find_spec("ray") is None:
        assert ".[ray]" in refused(rollbook(*words, "--workers", "1"))
