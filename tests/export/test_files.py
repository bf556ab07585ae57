import os
import resource
from pathlib import Path

import pytest

from rollbook.errors import StoreError, UsageError
from rollbook.export.files import replacing
from rollbook.store import RunWriter
from tests.export.build import names


def write(path: Path, data: bytes = b"new", *, overwrite: bool = False) -> None:
    with replacing(path, overwrite=overwrite) as file:
        file.write(data)


def test_a_file_appears_whole(tmp_path: Path) -> None:
    with replacing(tmp_path / "out", overwrite=False) as file:
        file.write(b"half")
        file.flush()
        assert not (tmp_path / "out").exists()
    assert (names(tmp_path), (tmp_path / "out").read_bytes()) == (["out"], b"half")
    assert (tmp_path / "out").stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _fail(path: Path, error: type[BaseException]) -> None:
    with replacing(path, overwrite=True) as file:
        file.write(b"half")
        raise error


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_whatever_goes_wrong_nothing_is_left_and_the_old_file_stays(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "out").write_bytes(b"old")
    with pytest.raises(error):
        _fail(tmp_path / "out", error)
    assert (names(tmp_path), (tmp_path / "out").read_bytes()) == (["out"], b"old")


def test_an_existing_file_is_refused_unless_told(tmp_path: Path) -> None:
    write(tmp_path / "out", b"old")
    with pytest.raises(UsageError, match="exists; choose another name"):
        write(tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == b"old"
    write(tmp_path / "out", overwrite=True)
    assert (names(tmp_path), (tmp_path / "out").read_bytes()) == (["out"], b"new")


def test_a_file_that_came_meanwhile_is_not_replaced(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="exists"), replacing(tmp_path / "out", overwrite=False):
        (tmp_path / "out").write_bytes(b"theirs")
    assert (names(tmp_path), (tmp_path / "out").read_bytes()) == (["out"], b"theirs")


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    with pytest.raises(UsageError, match="is a folder"):
        write(tmp_path / "out", overwrite=True)


@pytest.mark.parametrize(
    ("place", "text"),
    [
        ("no/out", "its folder does not exist"),
        ("file/out", "its folder is a file"),
        ("x" * 300, "the name is too long"),
    ],
)
def test_a_place_that_cannot_be_written_is_named(tmp_path: Path, place: str, text: str) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreError, match=text):
        write(tmp_path / place)
    assert names(tmp_path) == ["file"]


def test_a_name_that_no_file_system_takes_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no file name"):
        write(tmp_path / "a\ud800")


def test_a_file_that_does_not_fit_leaves_nothing(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, hard))
    try:
        with pytest.raises(StoreError, match="cannot write"):
            write(tmp_path / "out", b"x" * (2 << 20))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert names(tmp_path) == []


def test_what_is_no_plain_file_is_never_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    (tmp_path / "link").symlink_to(pipe)
    for path in (pipe, tmp_path / "link"):
        with pytest.raises(UsageError, match="is no plain file"):
            write(path, overwrite=True)
    assert pipe.is_fifo()
    assert sorted(each.name for each in tmp_path.iterdir()) == ["link", "pipe"]


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"old")
    (tmp_path / "link").symlink_to("file")
    write(tmp_path / "link", overwrite=True)
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_bytes() == b"new"


@pytest.mark.parametrize("place", ["run.json", "new.jsonl", "segments/a.seg", "annotations/x.ann"])
def test_a_runs_own_folder_takes_no_export(tmp_path: Path, place: str) -> None:
    RunWriter.create(tmp_path / "run").close()
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(UsageError, match="the run's own folder"):
        write(tmp_path / "run" / place, overwrite=True)
    assert sorted(tmp_path.rglob("*")) == before
