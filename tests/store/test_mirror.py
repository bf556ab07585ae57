"""A mirrored run is the run, whoever died on the way, and nothing that was sent is ever written over."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RunLocked, StoreError
from rollbook.run import open_run
from rollbook.store import (
    AnnotationWriter,
    RunReader,
    RunWriter,
    SegmentReader,
    create_spool,
    read_manifest,
    redact_trace,
    write_manifest,
)
from rollbook.trace import Annotation
from tests.store.made import content, whole_trace
from tests.store.runs import SMALL, Ledger, Step, abandon, step_lists

pytest.importorskip("obstore")

from rollbook.store.fetch import fetch_parts, fetch_run
from rollbook.store.mirror import ObjectMirror
from rollbook.store.objects import Objects
from rollbook.store.pieces import pack_piece, piece_key

_NUMBER = itertools.count()


def new_url() -> str:
    return f"memory:///{os.getpid()}-{next(_NUMBER)}"


class Broke(StoreError):
    """The network did."""


class Failing(Objects):
    """Objects whose writes fail when asked to, before or after they took effect."""

    __slots__ = ("plan",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.plan: list[str] = []

    def put_new(self, key: str, data: bytes) -> bool:
        what = self.plan.pop(0) if self.plan else "fine"
        if what == "before":
            raise Broke
        done = super().put_new(key, data)
        if what == "after":
            raise Broke
        return done


class Counted(Objects):
    """Objects that know how often each was written."""

    written: list[str]
    __slots__ = ("written",)

    def __init__(self, url: str) -> None:
        super().__init__(url)
        self.written = []

    def put_new(self, key: str, data: bytes) -> bool:
        self.written.append(key)
        return super().put_new(key, data)


@settings(max_examples=30, deadline=None)
@given(step_lists(), st.lists(st.sampled_from(["fine", "before", "after", "new", "no sync"]), max_size=25))
def test_what_was_sent_is_the_run_whatever_breaks(steps: list[Step], luck: list[str]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        run, url = Path(folder) / "run", new_url()
        ledger = Ledger()
        sent: dict[str, bytes] = {}
        with RunWriter.create(run, options=SMALL) as writer:
            mirror = ObjectMirror(run, objects := Failing(url), piece_bytes=700)
            for step, what in zip(steps, itertools.chain(luck, itertools.repeat("fine")), strict=False):
                ledger.step(writer, step)
                if what == "new":
                    mirror = ObjectMirror(run, objects := Failing(url), piece_bytes=500)
                if what == "no sync":
                    continue
                objects.plan = [what] if what in ("before", "after") else []
                if objects.plan:
                    with suppress(Broke):
                        mirror.sync()
                else:
                    mirror.sync()
                now = {key: objects.get(key) for key in objects.list()}
                assert {key: now[key] for key in sent} == sent
                sent = now
        ObjectMirror(run, url).sync()
        copy = RunReader(fetch_run(url, Path(folder) / "cache"), strict=True)
        assert {trace.id: content(trace) for trace in copy.traces()} == ledger.sealed
        for path in (run / "segments").iterdir():
            assert (copy.folder / "segments" / path.name).read_bytes() == path.read_bytes()


def test_a_run_is_followed_from_its_url(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run, {"n": 1}, options=SMALL) as writer:
        mirror = ObjectMirror(run, url, piece_bytes=1000)
        for seed in range(5):
            writer.seal(whole_trace(f"r{seed}", seed))
            writer.annotate([Annotation(producer="a/b", name="n", rollout=f"r{seed}", value=seed)])
            mirror.sync()
            reader = open_run(url, cache=tmp_path / "cache")
            assert len(reader) == len(reader.annotations()) == seed + 1
            assert reader.report.clean
        write_manifest(run, read_manifest(run))
        before = mirror.sync()
        assert before == mirror.sync()
    mirror.sync()
    reader = open_run(url, cache=tmp_path / "cache")
    assert reader.manifest.config == {"n": 1}
    assert reader.folder.parent == tmp_path / "cache" / "runs"
    assert [path.name for path in reader.folder.parent.iterdir()] == [reader.folder.name]
    assert [content(trace) for trace in reader.traces()] == [content(trace) for trace in RunReader(run).traces()]
    assert not list(Objects(url).list("journal/"))


def test_a_second_look_sends_and_fetches_nothing_again(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r0"))
    objects = Counted(url)
    ObjectMirror(run, objects).sync()
    assert len(objects.written) == 2
    ObjectMirror(run, objects).sync()
    assert len(objects.written) == 2
    folder = fetch_run(url, tmp_path / "cache")
    (path,) = (folder / "segments").iterdir()
    stamp = path.stat().st_mtime_ns
    assert fetch_run(url, tmp_path / "cache") == folder
    assert path.stat().st_mtime_ns == stamp


def test_a_torn_copy_is_mended(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run) as writer:
        for seed in range(3):
            writer.seal(whole_trace(f"r{seed}", seed))
    ObjectMirror(run, url, piece_bytes=1500).sync()
    folder = fetch_run(url, tmp_path / "cache")
    (path,) = (folder / "segments").iterdir()
    data = path.read_bytes()
    for size in (0, 1, 1499, 1500, 1501, len(data) - 1):
        path.write_bytes(data[:size])
        fetch_run(url, tmp_path / "cache")
        assert path.read_bytes() == data


def test_a_changed_object_is_not_believed(tmp_path: Path) -> None:
    run = tmp_path / "run"
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r0"))
    bucket = tmp_path / "bucket"
    url = f"file://{bucket}"
    ObjectMirror(run, url).sync()
    (piece,) = bucket.glob("segments/*/*")
    data = bytearray(piece.read_bytes())
    data[100] ^= 1
    piece.write_bytes(data)
    with pytest.raises(StoreError, match="not what was written"):
        fetch_run(url, tmp_path / "cache")
    piece.rename(piece.with_name("00000002"))
    with pytest.raises(StoreError, match="is missing"):
        fetch_run(url, tmp_path / "cache")


def test_an_unfinished_frame_is_not_sent(tmp_path: Path) -> None:
    """What a repair cuts off and writes otherwise was never sent."""
    run, url = tmp_path / "run", new_url()
    writer = RunWriter.create(run, writer="w")
    writer.seal(whole_trace("r0"))
    writer.seal(whole_trace("r1", 1))
    abandon(writer)
    (path,) = (run / "segments").iterdir()
    data, last = path.read_bytes(), SegmentReader(path).entries()[1]
    path.write_bytes(data[: last.offset + 100])
    ObjectMirror(run, url).sync()
    assert RunReader(fetch_run(url, tmp_path / "cache"), strict=True).report.clean
    with RunWriter.open(run) as writer:
        writer.seal(whole_trace("r2", 2))
    ObjectMirror(run, url).sync()
    copy = RunReader(fetch_run(url, tmp_path / "cache"), strict=True)
    assert copy.rollouts() == ["r0", "r2"]
    assert copy.report.clean


def test_workers_mirror_their_own_part_from_a_spool(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run, {"seed": 4}) as owner:
        main = ObjectMirror(run, url)
        for name in ("w0", "w1"):
            spool = tmp_path / name
            create_spool(spool, owner.manifest)
            create_spool(spool, owner.manifest)
            with RunWriter.join(spool, name) as worker:
                worker.seal(whole_trace(f"of-{name}", 1))
                ObjectMirror(spool, url, part=name).sync()
                worker.seal(whole_trace(f"late-{name}", 2))
            ObjectMirror(spool, url, part=name).sync()
            with pytest.raises(StoreError, match="holds no run"):
                fetch_run(new_url(), tmp_path / "cache")
        owner.annotate([Annotation(producer="a", name="n", rollout="of-w0", value=1)])
        main.sync()
    reader = open_run(url, cache=tmp_path / "cache")
    assert reader.rollouts() == ["of-w0", "late-w0", "of-w1", "late-w1"]
    assert (len(reader.annotations()), reader.manifest.config) == (1, {"seed": 4})


def test_a_mirror_of_a_part_sends_nothing_else(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run) as owner, RunWriter.join(run, "w0") as one, RunWriter.join(run, "w1") as two:
        for writer, rollout in ((owner, "a"), (one, "b"), (two, "c")):
            writer.seal(whole_trace(rollout))
        owner.annotate([Annotation(producer="a", name="n", rollout="a", value=1)])
    ObjectMirror(run, url, part="w1").sync()
    assert [key.rpartition("/")[0] for key in Objects(url).list()] == ["writers/w1/segments/w1-000001.seg"]
    with pytest.raises(StoreError, match="holds no run"):
        fetch_run(url, tmp_path / "cache")
    ObjectMirror(run, url).sync()
    assert set(open_run(url, cache=tmp_path / "cache").rollouts()) == {"a", "b", "c"}


def test_without_the_extra_a_url_is_refused_with_the_remedy() -> None:
    code = (
        "import sys; sys.modules['obstore'] = None\n"
        "from rollbook import open_run\n"
        "from rollbook.errors import UsageError\n"
        "try: open_run('s3://bucket/run')\n"
        "except UsageError as error: print(error)"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert told.startswith("s3://bucket/run: an object store needs the extra objects")


def test_looking_for_a_run_makes_no_folder_where_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "an empty one").mkdir()
    for name, says in (
        ("there/run", "no such folder"),
        ("an empty one", "is missing"),
        ("an%20empty%20one", "is missing"),
    ):
        with pytest.raises(StoreError, match=f"holds no run.*{says}"):
            open_run(f"file://{tmp_path}/{name}", cache=tmp_path / "cache")
    assert [each.name for each in tmp_path.iterdir()] == ["an empty one"]


def test_a_spool_is_of_one_run(tmp_path: Path) -> None:
    first, second = RunWriter.create(tmp_path / "a"), RunWriter.create(tmp_path / "b")
    create_spool(tmp_path / "spool", first.manifest)
    with pytest.raises(StoreError, match="belongs to another run"):
        create_spool(tmp_path / "spool", second.manifest)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(StoreError, match="no spool"):
        create_spool(tmp_path / "other", first.manifest)
    with pytest.raises(StoreError, match="cannot be made"):
        create_spool(tmp_path / "other" / "file", first.manifest)
    with RunWriter.join(tmp_path / "spool", "w0"), pytest.raises(RunLocked):
        RunWriter.join(tmp_path / "spool", "w0")


def test_a_url_is_of_one_run(tmp_path: Path) -> None:
    url = new_url()
    RunWriter.create(tmp_path / "a").close()
    RunWriter.create(tmp_path / "b").close()
    ObjectMirror(tmp_path / "a", url).sync()
    with pytest.raises(StoreError, match="holds another run"):
        ObjectMirror(tmp_path / "b", url)
    with pytest.raises(StoreError, match="cannot name a writer"):
        ObjectMirror(tmp_path / "a", url, part="../b")


def test_two_mirrors_of_one_part_that_differ_are_told(tmp_path: Path) -> None:
    url = new_url()
    manifest = RunWriter.create(tmp_path / "run").manifest
    mirrors: list[ObjectMirror] = []
    for seed in (1, 2):
        create_spool(tmp_path / str(seed), manifest)
        with RunWriter.join(tmp_path / str(seed), "w0") as worker:
            worker.seal(whole_trace(f"r{seed}", seed))
        mirrors.append(ObjectMirror(tmp_path / str(seed), url, part="w0"))
    mirrors[0].sync()
    with pytest.raises(StoreError, match="is not what was mirrored"):
        mirrors[1].sync()
    with pytest.raises(StoreError, match="is not what was mirrored"):
        ObjectMirror(tmp_path / "2", url, part="w0").sync()


def test_two_mirrors_of_the_same_files_agree(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run) as writer:
        ObjectMirror(run, url).sync()
        one, two = ObjectMirror(run, url, piece_bytes=900), ObjectMirror(run, url, piece_bytes=700)
        for seed in range(4):
            writer.seal(whole_trace(f"r{seed}", seed))
            (one, two)[seed % 2].sync()
    one.sync()
    two.sync()
    assert len(RunReader(fetch_run(url, tmp_path / "cache"), strict=True)) == 4


def test_a_redacted_run_is_not_mirrored_over_the_old_one(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r", 1))
    mirror = ObjectMirror(run, url)
    mirror.sync()
    redact_trace(run, "r", 1)
    for each in (mirror, ObjectMirror(run, url)):
        with pytest.raises(StoreError, match=r"it was redacted.* remove the old objects"):
            each.sync()
    ObjectMirror(run, new_url()).sync()


def test_annotations_of_another_process_go_along(tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    with RunWriter.create(run) as writer:
        writer.seal(whole_trace("r"))
        with AnnotationWriter(run, "trainer ż") as trainer:
            trainer.write([Annotation(producer="trainer ż", name="n", rollout="r", value=1)])
            ObjectMirror(run, url).sync()
    assert len(open_run(url, cache=tmp_path / "cache").annotations()) == 1


@pytest.mark.parametrize(
    ("name", "piece", "says"),
    [
        ("run.json", pack_piece(0, b"[]"), "is no run's run.json"),
        ("run.json", pack_piece(0, b"{}"), "is no run's run.json"),
        ("run.json", pack_piece(7, b"{}"), "is not what was written"),
        ("segments/a-000001.seg", pack_piece((1 << 64) - 1, b"x"), "is not what was written"),
        ("segments/a-000001.seg", pack_piece(7, b"x"), "is not what was written"),
    ],
)
def test_what_somebody_else_put_there_is_told(tmp_path: Path, name: str, piece: bytes, says: str) -> None:
    url = new_url()
    RunWriter.create(tmp_path / "run").close()
    assert Objects(url).put_new(piece_key(name, 1), piece)
    with pytest.raises(StoreError, match=says):
        ObjectMirror(tmp_path / "run", url).sync()


@pytest.mark.parametrize("place", ["run.json", "segments/a-000009.seg", "segments", "annotations", "writers/w0"])
def test_what_a_link_leads_to_is_not_sent(place: str, tmp_path: Path) -> None:
    url = new_url()
    run, other = tmp_path / "run", tmp_path / "other"
    for folder in (run, other):
        with RunWriter.create(folder) as writer, RunWriter.join(folder, "w0") as worker:
            writer.seal(whole_trace(folder.name, 1))
            worker.seal(whole_trace(f"{folder.name}-w0", 1))
    (segment,) = (other / "segments").iterdir()
    if (run / place).exists():
        (run / place).rename(tmp_path / "aside")
    (run / place).symlink_to(segment if place.endswith(".seg") else other / place)
    with pytest.raises(StoreError, match="symbolic link"):
        ObjectMirror(run, url).sync()
    objects = Objects(url)
    assert not any(b"other" in objects.get(key) for key in objects.list())


@pytest.mark.parametrize("place", ["writers", "writers/w0", "writers/w0/segments", "writers/w0/segments/*.seg"])
def test_what_is_fetched_into_a_run_is_not_written_through_a_link(place: str, tmp_path: Path) -> None:
    run, url = tmp_path / "run", new_url()
    manifest = RunWriter.create(run).manifest
    create_spool(tmp_path / "spool", manifest)
    with RunWriter.join(tmp_path / "spool", "w0") as worker:
        worker.seal(whole_trace("r", 1))
    ObjectMirror(tmp_path / "spool", url, part="w0").sync()
    assert fetch_parts(url, run, lambda _: True) == ["w0"]
    (found,) = run.glob(place)
    (segment,) = run.glob("writers/w0/segments/*.seg")
    segment.write_bytes(b"theirs")
    found.rename(tmp_path / "outside")
    found.symlink_to(tmp_path / "outside")
    with pytest.raises(StoreError, match="symbolic link"):
        fetch_parts(url, run, lambda _: True)
    assert segment.read_bytes() == b"theirs"
