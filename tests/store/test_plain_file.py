"""A run folder that somebody else prepared: its links lead no reader and no writer out of it, and nothing hangs."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from rollbook.errors import StoreError
from rollbook.store import AnnotationWriter, RunReader, RunWriter, StoreOptions, read_manifest, redact_trace
from rollbook.store.append import AppendFile, replace_file
from rollbook.store.folder import RunLock
from rollbook.store.plain_file import open_plain, refuse_links
from rollbook.trace import Annotation
from tests.store.made import new_trace, whole_trace
from tests.store.runs import abandon

NOTE = Annotation(producer="p", name="n", rollout="r", value=1)
Act = Callable[[Path], object]


def write(run: Path) -> None:
    with RunWriter.open(run) as writer:
        writer.seal_interrupted()


def join(run: Path) -> None:
    with RunWriter.join(run, "w1") as writer:
        writer.seal(whole_trace("new", 1))


def annotate(run: Path) -> None:
    with AnnotationWriter(run, "p") as writer:
        writer.write([NOTE])


def read(run: Path) -> None:
    reader = RunReader(run, strict=True)
    list(reader.traces())
    reader.annotations()


def made_run(run: Path) -> Path:
    """A run whose writers died, with something at every place."""
    owner, worker = RunWriter.create(run), RunWriter.join(run, "w0")
    for writer in (owner, worker):
        name = writer.part or "owner"
        writer.seal(whole_trace(f"{name}-done", 1))
        writer.begin(new_trace(f"{name}-running", 1))
    owner.annotate([NOTE])
    abandon(owner)
    abandon(worker)
    return run


def everything(folder: Path) -> dict[str, bytes | None]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


FILES = {
    "run.json": (read, write, join, annotate),
    "lock": (write,),
    "writers/w0/lock": (write,),
    "segments/*.seg": (read, write),
    "writers/w0/segments/*.seg": (read, write),
    "journal/*.jnl": (write,),
    "writers/w0/journal/*.jnl": (lambda run: RunWriter.join(run, "w0"),),
    "annotations/p.ann": (read, write, annotate),
    "segments": (read, write),
    "journal": (write,),
    "annotations": (read, write, annotate),
    "writers": (read, write, join),
    "writers/w0": (read, write),
    "writers/w0/segments": (read,),
    "writers/w0/journal": (lambda run: RunWriter.join(run, "w0"),),
}


@pytest.mark.parametrize(("place", "act"), [(place, act) for place, acts in FILES.items() for act in acts])
def test_a_link_in_a_run_leads_nobody_out_of_it(place: str, act: Act, tmp_path: Path) -> None:
    """It leads to the very thing that belongs there, with a torn tail that a writer would cut."""
    run = made_run(tmp_path / "run")
    (link,) = run.glob(place)
    if link.suffix:
        with link.open("ab") as file:
            file.write(b"RBF1" if link.suffix != ".json" else b"\n")
    outside = tmp_path / "outside"
    link.rename(outside)
    link.symlink_to(outside)
    before = everything(tmp_path)
    with pytest.raises(StoreError, match="symbolic link"):
        act(run)
    after = everything(tmp_path)
    theirs = [name for name in before if name.startswith("outside")]
    assert {name: after[name] for name in theirs} == {name: before[name] for name in theirs}
    assert [name for name in after if name.startswith("outside")] == theirs


def test_the_folder_of_the_run_itself_may_be_a_link(tmp_path: Path) -> None:
    made_run(tmp_path / "run")
    (tmp_path / "link").symlink_to("run")
    write(tmp_path / "link")
    read(tmp_path / "link")


@pytest.mark.parametrize("target", ["nowhere", "/etc/passwd", "/dev/zero"])
def test_a_reader_tells_a_link_among_the_segments_and_goes_on(target: str, tmp_path: Path) -> None:
    with RunWriter.create(tmp_path / "run") as writer:
        writer.seal(whole_trace("r", 1))
    (tmp_path / "run" / "segments" / "a-000009.seg").symlink_to(target)
    reader = RunReader(tmp_path / "run")
    assert [trace.id for trace in reader.traces()] == ["r"]
    assert "symbolic link" in str(reader.report)


@pytest.mark.parametrize("place", ["run.json", "lock", "annotations/p.ann", "journal/x-000009.jnl"])
def test_nobody_waits_for_a_pipe(place: str, tmp_path: Path) -> None:
    run = made_run(tmp_path / "run")
    (run / place).unlink(missing_ok=True)
    os.mkfifo(run / place)
    for act in (write, *((annotate,) if place.endswith(".ann") else ())):
        with pytest.raises(StoreError, match=r"no plain file|No such device"):
            act(run)


@pytest.mark.parametrize("name", [".run.json.tmp", "segments/.{}.tmp", ".summary.parquet.tmp"])
def test_what_is_replaced_is_not_written_through_a_link(name: str, tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r", 1))
    (segment,) = (run / "segments").iterdir()
    outside = tmp_path / "outside"
    outside.write_bytes(b"theirs")
    place = run / name.format(segment.name)
    if "segments" in name:
        place.symlink_to(outside)
        redact_trace(run, "r", 1)
    else:
        for make in (place.symlink_to, place.hardlink_to):
            make(outside)
            replace_file(run / name.removeprefix(".").removesuffix(".tmp"), b"ours")
    assert outside.read_bytes() == b"theirs"
    assert not place.is_symlink()
    assert not place.exists()


def test_a_folder_at_the_temporary_name_is_told(tmp_path: Path) -> None:
    (tmp_path / ".x.tmp" / "y").mkdir(parents=True)
    with pytest.raises(StoreError, match="cannot be written"):
        replace_file(tmp_path / "x", b"")


def test_nothing_is_made_where_a_dangling_link_leads(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "made")
    with pytest.raises(StoreError, match="symbolic link"):
        RunLock(tmp_path)
    with pytest.raises(StoreError, match="symbolic link"):
        AppendFile(tmp_path / "lock", StoreOptions(), new=False)
    assert not (tmp_path / "made").exists()


def test_the_way_is_looked_at_from_the_root_on(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "l").symlink_to("a")
    (tmp_path / "a" / "l").symlink_to("b")
    assert refuse_links(tmp_path / "l", tmp_path / "l" / "b" / "new") == tmp_path / "l" / "b" / "new"
    for way in ("l", "l/b", "a/l", "a/l/c"):
        with pytest.raises(StoreError, match="symbolic link"):
            refuse_links(tmp_path, tmp_path / way)
    with pytest.raises(OSError, match="no plain file"):
        open_plain(tmp_path / "a", os.O_RDONLY)
    assert read_manifest(made_run(tmp_path / "run")).version == 2
