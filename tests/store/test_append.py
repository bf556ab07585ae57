"""Appending: a frame is in the file whole or not at all, and a failed write can be made again."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from rollbook.errors import StoreError
from rollbook.store import RunReader, RunWriter, StoreOptions
from rollbook.store.append import AppendFile, replace_file
from rollbook.trace import Annotation
from tests.store.made import add_turn, content, finish, new_trace, whole_trace


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    """Files of this process cannot grow beyond `size`: writes reach it in part, then fail, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def test_a_write_that_fails_midway_leaves_nothing(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "f", StoreOptions(), new=True)
    file.append(b"a" * 100)
    with largest_file(150), pytest.raises(StoreError, match="Nothing was stored of this step"):
        file.append(b"b" * 100)
    assert (tmp_path / "f").read_bytes() == b"a" * 100
    assert file.append(b"c" * 100) == 100
    file.close()
    assert (tmp_path / "f").read_bytes() == b"a" * 100 + b"c" * 100


def test_bytes_that_a_failed_cut_left_go_with_the_next_write(tmp_path: Path) -> None:
    file = AppendFile(tmp_path / "f", StoreOptions(), new=True)
    file.append(b"a" * 10)
    with (tmp_path / "f").open("ab") as other:
        other.write(b"torn")
    file.append(b"b" * 10)
    file.close()
    assert (tmp_path / "f").read_bytes() == b"a" * 10 + b"b" * 10


def test_a_new_file_never_replaces_one(tmp_path: Path) -> None:
    (tmp_path / "f").write_bytes(b"mine")
    with pytest.raises(StoreError, match="File exists"):
        AppendFile(tmp_path / "f", StoreOptions(), new=True)
    assert (tmp_path / "f").read_bytes() == b"mine"


def test_a_failed_replacement_leaves_the_old_file(tmp_path: Path) -> None:
    replace_file(tmp_path / "f", b"old")
    with largest_file(10), pytest.raises(StoreError, match="cannot be written"):
        replace_file(tmp_path / "f", b"new" * 100)
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
    assert (tmp_path / "f").read_bytes() == b"old"


def test_a_full_disk_loses_nothing(tmp_path: Path) -> None:
    """Every step fails once at some length of the file, is made again with more room, and all is there."""
    run = tmp_path / "run"
    writer = RunWriter.create(run)
    first, second = new_trace("r1", 1), new_trace("r2", 2)
    with largest_file(40):
        with pytest.raises(StoreError):
            writer.begin(first)
        assert not list((run / "journal").iterdir())
    writer.begin(first)
    writer.begin(second)
    add_turn(first, 1, tokens=300)
    (journal,) = (run / "journal").iterdir()
    with largest_file(journal.stat().st_size + 700), pytest.raises(StoreError):
        writer.turn(first)
    before = content(first)
    writer.turn(first)
    finish(first)
    with largest_file(300):
        for _ in range(2):
            with pytest.raises(StoreError):
                writer.seal(first)
            assert not first.sealed
        with pytest.raises(StoreError):
            writer.annotate([Annotation(producer="p", name="n", rollout="r1", value=os.urandom(500))])
    assert content(first)[:4] == before[:4]
    writer.seal(first)
    writer.annotate([Annotation(producer="p", name="n", rollout="r1", value=1)])
    (segment,) = (run / "segments").iterdir()
    with largest_file(segment.stat().st_size + 20), pytest.raises(StoreError):
        writer.close()
    with RunWriter.open(run) as writer:
        assert writer.recovery.clean
        assert [content(trace) for trace in writer.recover()] == [content(second)]
        writer.seal_interrupted()
    reader = RunReader(run, strict=True)
    assert content(reader.get("r1")) == content(first)
    assert [note.value for note in reader.annotations()] == [1]


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small disk needs root")
def test_a_really_full_disk(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("this sandbox forbids mounting")
    try:
        writer = RunWriter.create(disk / "run")
        done: list[str] = []
        (disk / "ballast").write_bytes(bytes(60_000))
        with pytest.raises(StoreError, match="No space left"):
            fill(writer, done)
        (disk / "ballast").unlink()
        writer.seal(whole_trace("late", 1))
        writer.close()
        reader = RunReader(disk / "run", strict=True)
        assert [trace.id for trace in reader.traces()] == [*done, "late"]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(writer: RunWriter, done: list[str]) -> None:
    for number in range(1000):
        trace = whole_trace(f"r{number}", number, turns=4, tokens=300)
        writer.seal(trace)
        done.append(trace.id)
