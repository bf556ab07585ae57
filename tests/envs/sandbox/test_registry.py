"""Tickets on disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from rollbook.envs.sandbox import Kind, Ticket, default_folder
from rollbook.envs.sandbox.registry import Registry
from rollbook.errors import UsageError

TICKET = Ticket("a", "local", Kind.PLAIN, 1, 2, "boot", "pid:[1]", 3.0, "ROLLBOOK_SANDBOX=a", ("g",), "w")


def test_a_ticket_comes_back_and_goes(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "deep" / "t")
    registry.put(TICKET)
    changed = msgspec.structs.replace(TICKET, expires=9.0)
    registry.write(changed)
    assert Registry(registry.folder).tickets() == ([changed], [])
    registry.remove("a")
    registry.remove("a")
    assert list(registry.folder.iterdir()) == []


def test_a_file_that_is_no_ticket_is_shown_and_left(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "t")
    (registry.folder / "torn.json").write_bytes(b'{"id":')
    (registry.folder / "b.json.new").write_bytes(b"")
    tickets, (bad,) = registry.tickets()
    assert (tickets, bad.path.name) == ([], "torn.json")
    assert bad.problem


def test_the_folder_is_private(tmp_path: Path) -> None:
    registry = Registry(tmp_path / "t")
    assert registry.folder.stat().st_mode & 0o777 == 0o700
    registry.folder.chmod(0o777)
    with pytest.raises(UsageError, match="nobody else can write"):
        Registry(registry.folder)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    with pytest.raises(UsageError, match="must be a folder of yours"):
        Registry(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="give another one"):
        Registry(tmp_path / "file")


def test_the_default_folder_is_this_users() -> None:
    folder = default_folder()
    assert folder.name == "sandboxes"
    assert str(os.getuid()) in str(folder)
