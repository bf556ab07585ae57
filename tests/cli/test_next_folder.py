"""The folder of a run that was given none."""

from __future__ import annotations

from pathlib import Path

import pytest

from rollbook.cli.next_folder import next_folder


def test_the_first_number_that_is_free(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    first = next_folder("calculator")
    assert (first.parent, first.name.endswith("-1")) == (Path("runs"), True)
    first.mkdir(parents=True)
    assert next_folder("calculator").name == f"{first.name[:-1]}2"
    assert next_folder("calculator", "train-").name == f"train-{first.name}"


@pytest.mark.parametrize(("env", "name"), [("my.worlds:MyWorld", "MyWorld-"), ("a:../../b", "b-"), ("a:..", "run-")])
def test_a_name_is_never_a_path(env: str, name: str) -> None:
    folder = next_folder(env)
    assert (folder.parent, folder.name[: len(name)]) == (Path("runs"), name)
