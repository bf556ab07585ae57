"""What a newer version wrote, or what was damaged before a segment was sealed, is told and never hidden."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from rollbook.errors import StoreError
from rollbook.store import AnnotationWriter, DamageReason, RunReader, RunWriter
from rollbook.trace import Annotation
from tests.store.made import content, whole_trace
from tests.store.newer import framed, with_section


def unsealed(folder: Path) -> tuple[Path, list[bytes]]:
    """A run of two traces whose writer died, and the bytes of its segment: header, trace, trace."""
    with RunWriter.create(folder / "living") as writer:
        writer.begin(whole_trace("r9"))
        ends = [0]
        for place in range(2):
            writer.seal(whole_trace(f"r{place}", place))
            (path,) = (folder / "living" / "segments").iterdir()
            ends.append(path.stat().st_size)
        shutil.copytree(folder / "living", folder / "run")
        data = path.read_bytes()
    return folder / "run" / "segments" / path.name, [data[: ends[1]], data[ends[1] :]]


@pytest.mark.parametrize("sealed", [False, True])
def test_a_frame_of_an_unknown_kind_is_told_also_behind_a_footer(sealed: bool, tmp_path: Path) -> None:
    path, (first, second) = unsealed(tmp_path)
    path.write_bytes(first + framed(77, second) + second)
    if sealed:
        RunWriter.open(tmp_path / "run").close()
    reader = RunReader(tmp_path / "run")
    assert [trace.id for trace in reader.traces()] == ["r0", "r1"]
    (damage,) = reader.report.damages
    assert (damage.reason, damage.offset, damage.bytes) == (DamageReason.UNKNOWN, len(first), len(second))
    with pytest.raises(StoreError, match="kind 77"):
        RunReader(tmp_path / "run", strict=True).rollouts()


def test_damage_from_before_a_segment_was_sealed_is_still_told(tmp_path: Path) -> None:
    path, (first, second) = unsealed(tmp_path)
    broken = bytearray(second)
    broken[40] ^= 1  # in the head, so that the frame is passed over
    path.write_bytes(first + bytes(broken) + second)
    RunWriter.open(tmp_path / "run").close()
    reader = RunReader(tmp_path / "run")
    assert reader.rollouts() == ["r0", "r1"]
    assert [damage.reason for damage in reader.report.damages] == [DamageReason.FRAME]


def test_an_unknown_section_is_told_and_the_rest_is_read(tmp_path: Path) -> None:
    path, (first, second) = unsealed(tmp_path)
    path.write_bytes(first + with_section(second, 99))
    reader = RunReader(tmp_path / "run")
    assert content(reader.get("r1")) == content(whole_trace("r1", 1))
    assert [damage.reason for damage in reader.report.damages] == [DamageReason.UNKNOWN]
    with pytest.raises(StoreError, match="99"):
        RunReader(tmp_path / "run", strict=True).get("r1")


@pytest.mark.parametrize("producer", ["half \ud835 pair", "\udfff", "a/b"])
def test_any_producer_can_be_read_back(producer: str, tmp_path: Path) -> None:
    RunWriter.create(tmp_path / "run").close()
    note = Annotation(producer=producer, name="label", rollout="r0", value="yes")
    for _ in range(2):
        with AnnotationWriter(tmp_path / "run", producer) as writer:
            writer.write([note])
    assert RunReader(tmp_path / "run", strict=True).annotations() == [note]
