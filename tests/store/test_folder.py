"""Run folders: what is ours is told from what is not, and one process writes at a time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from rollbook.errors import NewerFormat, RunLocked, StoreError
from rollbook.store import Manifest, RunReader, RunWriter, read_manifest, write_manifest
from rollbook.store.folder import annotation_path
from tests.store.made import whole_trace


def change(run: Path, **fields: object) -> None:
    plain = json.loads((run / "run.json").read_text())
    (run / "run.json").write_text(json.dumps(plain | fields))


def test_the_configuration_comes_back(tmp_path: Path) -> None:
    config = {"n": 4, "big": 10**40, "text": "ż 🙂 \udc80", "list": [1.5, None, True]}
    RunWriter.create(tmp_path / "run", config).close()
    manifest = read_manifest(tmp_path / "run")
    assert manifest.config == config
    write_manifest(tmp_path / "run", Manifest(created=1.0, rollbook="x", config={"n": 5}))
    assert RunReader(tmp_path / "run").manifest.config == {"n": 5}


def test_a_new_run_needs_an_empty_folder(tmp_path: Path) -> None:
    run = tmp_path / "a" / "run"
    RunWriter.create(run).close()
    with pytest.raises(StoreError, match="open it to continue it"):
        RunWriter.create(run)
    foreign = tmp_path / "foreign"
    foreign.mkdir()
    (foreign / "config.yaml").write_text("x: 1")
    with pytest.raises(StoreError, match="not a Rollbook run and is left alone"):
        RunWriter.create(foreign)
    assert [path.name for path in foreign.iterdir()] == ["config.yaml"]


def test_a_creation_that_died_early_can_be_made_again(tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    (run / ".run.json.tmp").write_text('{"form')
    RunWriter.create(run).close()
    assert RunReader(run).rollouts() == []


@pytest.mark.parametrize("open_run", [RunReader, RunWriter.open])
def test_what_is_not_a_run_is_named(tmp_path: Path, open_run: type[RunReader]) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        open_run(tmp_path / "nowhere")
    (tmp_path / "file").write_text("x")
    with pytest.raises(StoreError, match="is a file"):
        open_run(tmp_path / "file")
    other = tmp_path / "other"
    other.mkdir()
    with pytest.raises(StoreError, match="is not a Rollbook run"):
        open_run(other)
    for text, message in (
        ("", "not valid JSON"),
        ("[1]", "another tool"),
        ('{"format": "mlflow"}', "another tool"),
        ('{"format": "rollbook-run", "version": 1}', "damaged"),
        ("[" * 100_000, "not valid JSON"),
    ):
        (other / "run.json").write_text(text)
        with pytest.raises(StoreError, match=message):
            open_run(other)
    assert [path.name for path in other.iterdir()] == ["run.json"]


def test_a_newer_run_is_refused(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    change(tmp_path / "run", version=3, config="what a newer version may put here")
    for open_run in (RunReader, RunWriter.open):
        with pytest.raises(NewerFormat, match="Upgrade Rollbook"):
            open_run(tmp_path / "run")


def test_two_writers(tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run"):
        with pytest.raises(RunLocked, match=rf"pid {os.getpid()} on .* or write into another folder"):
            RunWriter.open(tmp_path / "run")
        code = f"from rollbook.store import RunWriter; RunWriter.open({str(tmp_path / 'run')!r})"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"RunLocked: {tmp_path / 'run'} is being written by another process (pid {os.getpid()}" in other.stderr
    RunWriter.open(tmp_path / "run").close()


def test_the_lock_of_a_dead_process_is_no_obstacle(tmp_path: Path) -> None:
    code = (
        f"import os, signal; from rollbook.store import RunWriter; RunWriter.create({str(tmp_path / 'run')!r}); "
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    subprocess.run([sys.executable, "-c", code], check=False)
    assert "pid" in (tmp_path / "run" / "lock").read_text()
    with RunWriter.open(tmp_path / "run") as writer:
        writer.seal(whole_trace("r"))


def test_a_refused_opening_leaves_no_lock(tmp_path: Path) -> None:
    run = tmp_path / "run"
    RunWriter.create(run).close()
    (run / "journal").rmdir()
    (run / "journal").write_text("in the way")
    with pytest.raises(StoreError):
        RunWriter.open(run)
    (run / "journal").unlink()
    RunWriter.open(run).close()


@pytest.mark.parametrize("producer", ["trainer", "a/b", "..", "ż \udc80", "x.y"])
def test_any_producer_has_its_own_file(tmp_path: Path, producer: str) -> None:
    path = annotation_path(tmp_path, producer)
    assert path.parent == tmp_path / "annotations"
    assert path.suffix == ".ann"


@pytest.mark.parametrize("producer", ["", "x" * 300])
def test_a_producer_needs_a_name(tmp_path: Path, producer: str) -> None:
    with pytest.raises(StoreError, match="producer"):
        annotation_path(tmp_path, producer)
