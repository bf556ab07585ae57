"""Segments: sealed and unsealed ones read the same; one trace is read without the others; newer ones are refused."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import msgspec
import pytest

from rollbook.errors import NewerFormat, StoreError
from rollbook.store import RunWriter, SegmentReader
from rollbook.store.append import AppendFile, StoreOptions
from rollbook.store.frame import FrameKind, Packer
from rollbook.store.scan import FileHeader, FileKind, FrameFile
from rollbook.store.segment import Entry, footer_frame
from rollbook.trace import Trace, summarise
from tests.store.made import content, whole_trace
from tests.store.runs import abandon

TRACES = [whole_trace(f"r{seed} \udc80", seed) for seed in range(4)]


def written(folder: Path, traces: list[Trace], *, closed: bool = True) -> Path:
    writer = RunWriter.create(folder, writer="w")
    for trace in traces:
        writer.seal(trace)
    if closed:
        writer.close()
    else:
        abandon(writer)
    return folder / "segments" / "w-000001.seg"


@pytest.mark.parametrize("closed", [True, False])
def test_everything_comes_back(tmp_path: Path, closed: bool) -> None:
    reader = SegmentReader(written(tmp_path / "run", TRACES, closed=closed))
    assert reader.summaries() == [summarise(trace) for trace in TRACES]
    assert reader.sealed is closed
    assert [content(found) for found in reader.traces() if isinstance(found, Trace)] == list(map(content, TRACES))
    assert content(reader.get(TRACES[2].id)) == content(TRACES[2])
    with pytest.raises(KeyError):
        reader.get("other")


def test_one_trace_is_read_without_the_others(tmp_path: Path) -> None:
    """With the frames of the other traces blanked out, a sealed segment still gives the one."""
    path = written(tmp_path / "run", TRACES)
    kept = SegmentReader(path).entries()[2]
    footer = max(entry.offset + entry.length for entry in SegmentReader(path).entries())
    data = path.read_bytes()
    blank = bytearray(len(data))
    blank[: 28 + int.from_bytes(data[8:12], "little")] = data[: 28 + int.from_bytes(data[8:12], "little")]
    for start, end in ((kept.offset, kept.offset + kept.length), (footer, len(data))):
        blank[start:end] = data[start:end]
    path.write_bytes(blank)
    reader = SegmentReader(path)
    assert content(reader.get(kept.rollout)) == content(TRACES[2])
    assert len(reader.summaries()) == len(TRACES)
    assert reader.report.clean


def test_a_damaged_footer_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    path = written(tmp_path / "run", TRACES)
    footer = max(entry.offset + entry.length for entry in SegmentReader(path).entries())
    for place in (footer + 5, footer + 40, footer + 80, path.stat().st_size - 20, path.stat().st_size - 3):
        copy = shutil.copy(path, tmp_path / "copy.seg")
        data = bytearray(copy.read_bytes())
        data[place] ^= 1
        copy.write_bytes(data)
        reader = SegmentReader(copy)
        assert reader.summaries() == [summarise(trace) for trace in TRACES]
        assert content(reader.get(TRACES[0].id)) == content(TRACES[0])
        assert not reader.report.clean


def test_an_index_that_lies_is_not_believed(tmp_path: Path) -> None:
    path = written(tmp_path / "run", TRACES, closed=False)
    first, second, *_ = SegmentReader(path).entries()
    file = AppendFile(path, StoreOptions(), new=False)
    lies = [Entry(first.rollout, second.offset, second.length)]
    file.append(footer_frame(Packer(), file.size, lies, []))
    file.close()
    reader = SegmentReader(path)
    assert reader.entries() == lies
    with pytest.raises(StoreError, match="holds trace"):
        reader.get(first.rollout)


def headed(path: Path, **fields: object) -> Path:
    header = FileHeader(content=FileKind.SEGMENT, wire=1, writer="w", created=1.0, rollbook="9.9")
    plain = msgspec.to_builtins(header) | fields
    file = AppendFile(path, StoreOptions(), new=True)
    file.append(Packer().pack(FrameKind.FILE, msgspec.msgpack.encode(plain)))
    file.close()
    return path


def test_other_versions_and_kinds_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(NewerFormat, match="format version 2"):
        SegmentReader(headed(tmp_path / "a.seg", format=2, unknown="field")).entries()
    with pytest.raises(NewerFormat, match="format version 7"):
        SegmentReader(headed(tmp_path / "b.seg", wire=7)).entries()
    with pytest.raises(StoreError, match="journal file, not a segment"):
        SegmentReader(headed(tmp_path / "c.seg", content="journal")).entries()
    assert SegmentReader(headed(tmp_path / "d.seg")).entries() == []


@pytest.mark.parametrize("data", [b"PK\x03\x04", b"{}", b"PAR1" + bytes(500)])
def test_other_files_are_named(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "x.seg").write_bytes(data)
    with pytest.raises(StoreError, match="is not a Rollbook segment file"):
        SegmentReader(tmp_path / "x.seg").entries()
    with pytest.raises(StoreError, match="cannot be read"):
        SegmentReader(tmp_path / "nowhere.seg").entries()


def test_heads_are_read_without_bodies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Listing an unsealed segment reads a small part of it."""
    big = [whole_trace(f"r{seed}", seed, turns=4, tokens=4000) for seed in range(3)]
    path = written(tmp_path / "run", big, closed=False)
    descriptor = os.open(path, os.O_RDONLY)
    frames = [found for found in FrameFile(descriptor, "f").walk() if not hasattr(found, "reason")]
    os.close(descriptor)
    bodies = sum(row.stored for frame in frames for row in frame.sections.values())  # type: ignore[union-attr]
    assert bodies > 0.9 * path.stat().st_size
    data = bytearray(path.read_bytes())
    for frame in frames:
        for row in frame.sections.values():  # type: ignore[union-attr]
            start = frame.offset + row.offset  # type: ignore[union-attr]
            data[start : start + row.stored] = bytes(row.stored)
    path.write_bytes(data)
    assert SegmentReader(path).summaries() == [summarise(trace) for trace in big]
