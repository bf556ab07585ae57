"""A run's folder is looked at first, and what is there is named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ConfigError, StoreError
from rollbook.rollout import GroupRules
from rollbook.run.resume import check_folder, open_folder
from rollbook.store import RunWriter
from tests.run.test_runner import CONFIG


def test_what_stands_in_the_folder_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    (tmp_path / "file").write_text("mine")
    for name, says in (
        ("run", "holds a run already; go on with it"),
        ("notes", "is not empty and no run"),
        ("file", "is a file"),
        ("file/run", "is a file"),
    ):
        before = sorted(tmp_path.rglob("*"))
        with pytest.raises(ConfigError, match=says):
            check_folder(CONFIG, tmp_path / name, resume=False, allow_changed=False)
        assert sorted(tmp_path.rglob("*")) == before
    check_folder(CONFIG, tmp_path / "new", resume=False, allow_changed=False)
    assert not (tmp_path / "new").exists()


def test_the_rules_of_groups_may_change_and_their_size_may_not(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    open_folder(CONFIG, folder, resume=False, allow_changed=False)[1].close()
    rules = msgspec.structs.replace(CONFIG, groups=GroupRules(refill=1))
    with pytest.raises(ConfigError, match="or allow the change"):
        check_folder(rules, folder, resume=True, allow_changed=False)
    check_folder(rules, folder, resume=True, allow_changed=True)
    with pytest.raises(ConfigError, match="A run keeps its"):
        check_folder(msgspec.structs.replace(CONFIG, group=5), folder, resume=True, allow_changed=True)


def test_a_damaged_account_of_resources_is_found_before_anything_runs(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    open_folder(CONFIG, folder, resume=False, allow_changed=False)[1].close()
    check_folder(CONFIG, folder, resume=True, allow_changed=False)
    (folder / "resources.json").write_text("{")
    with pytest.raises(StoreError, match="if you delete it"):
        check_folder(CONFIG, folder, resume=True, allow_changed=False)


def test_a_new_run_has_nothing_that_could_have_changed(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--allow-changed goes with --resume only"):
        check_folder(CONFIG, tmp_path / "new", resume=False, allow_changed=True)
