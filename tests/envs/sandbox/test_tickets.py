"""Tickets on disk."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pytest

from rollbook.envs.sandbox import Kind, Ticket, default_folder
from rollbook.envs.sandbox.tickets import TicketFolder
from rollbook.errors import UsageError

TICKET = Ticket("a", "local", Kind.PLAIN, 1, 2, "boot", "pid:[1]", 3.0, "ROLLBOOK_SANDBOX=a", ("g",))


def test_a_ticket_comes_back_and_goes(tmp_path: Path) -> None:
    written = TicketFolder(tmp_path / "deep" / "t")
    written.put(TICKET)
    changed = msgspec.structs.replace(TICKET, expires=9.0)
    written.write(changed)
    assert TicketFolder(written.folder).read_all() == ([changed], [])
    written.remove("a")
    written.remove("a")
    assert list(written.folder.iterdir()) == []


def test_a_file_that_is_no_ticket_is_shown_and_left(tmp_path: Path) -> None:
    written = TicketFolder(tmp_path / "t")
    (written.folder / "torn.json").write_bytes(b'{"id":')
    (written.folder / "b.json.new").write_bytes(b"")
    tickets, (bad,) = written.read_all()
    assert (tickets, bad.path.name) == ([], "torn.json")
    assert bad.problem


def test_a_ticket_that_names_what_is_not_its_own_is_shown_and_left(tmp_path: Path) -> None:
    written = TicketFolder(tmp_path / "t")
    forged = {
        "a": {"id": "../mine"},
        "b": {"id": "b", "label": "PATH=/usr/bin"},
        "c": {"id": "c", "label": "ROLLBOOK_SANDBOX=c", "workspace": str(tmp_path)},
        "": {"id": "", "label": "ROLLBOOK_SANDBOX="},
    }
    for name, changes in forged.items():
        changed = msgspec.structs.replace(TICKET, **changes)
        (written.folder / f"{name}.json").write_bytes(msgspec.json.encode(changed))
    (written.folder / "d.json").symlink_to(tmp_path / "elsewhere")
    os.mkfifo(written.folder / "e.json")
    (written.folder / "f.json").write_bytes(b" " * (1 << 17))
    tickets, bad = written.read_all()
    assert tickets == []
    assert [each.path.name for each in bad] == [".json", "a.json", "b.json", "c.json", "d.json", "e.json", "f.json"]


def test_two_that_write_a_ticket_do_not_meet(tmp_path: Path) -> None:
    written = TicketFolder(tmp_path / "t")
    (written.folder / "a.json.new").mkdir()
    written.put(TICKET)
    assert written.has("a")
    assert not written.has("b")


def test_others_cannot_swap_the_folder(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    with pytest.raises(UsageError, match="others can swap it"):
        TicketFolder(tmp_path / "open" / "t")
    assert not (tmp_path / "open" / "t").exists()
    (tmp_path / "open").chmod(0o1777)
    assert TicketFolder(tmp_path / "open" / "t").folder.is_dir()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives a folder away")
def test_a_folder_below_somebody_elses_is_refused(tmp_path: Path) -> None:
    (tmp_path / "theirs").mkdir()
    os.chown(tmp_path / "theirs", 65534, 65534)
    (tmp_path / "link").symlink_to(tmp_path)
    os.lchown(tmp_path / "link", 65534, 65534)
    for parent in ("theirs", "link"):
        with pytest.raises(UsageError, match="others can swap it"):
            TicketFolder(tmp_path / parent / "t")
    assert not (tmp_path / "t").exists()


def test_the_folder_is_private(tmp_path: Path) -> None:
    written = TicketFolder(tmp_path / "t")
    assert written.folder.stat().st_mode & 0o777 == 0o700
    written.folder.chmod(0o777)
    with pytest.raises(UsageError, match="nobody else can write"):
        TicketFolder(written.folder)
    (tmp_path / "link").symlink_to(tmp_path / "t")
    with pytest.raises(UsageError, match="must be a folder of yours"):
        TicketFolder(tmp_path / "link")
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="give another one"):
        TicketFolder(tmp_path / "file")


def test_the_default_folder_is_this_users() -> None:
    folder = default_folder()
    assert folder.name == "sandboxes"
    assert str(os.getuid()) in str(folder)
