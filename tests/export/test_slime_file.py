"""The form `slime`: torch's own layout, written without torch."""

from __future__ import annotations

import io
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest

from rollbook.errors import UsageError
from rollbook.export import export
from rollbook.export.conformance.made import cases, made_up_samples
from rollbook.export.doors import slime
from rollbook.export.slime_file import open_writer
from rollbook.trace import Disposition, Fate
from tests.export.build import batch, names, sound

USED = Disposition(Fate.USED, "asked for")


class Plain(pickle.Unpickler):
    """Refuses every name: only plain data comes out."""

    def find_class(self, module: str, name: str) -> Any:
        raise AssertionError(f"{module}.{name} in the file")


def read(path: Path) -> Any:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.read("archive/version") == b"3\n"
        assert all(info.compress_type == zipfile.ZIP_STORED for info in file.infolist())
        return Plain(io.BytesIO(file.read("archive/data.pkl"))).load()


def test_the_file_holds_the_records_of_the_door(tmp_path: Path) -> None:
    samples = made_up_samples(cases())
    path = tmp_path / "rollout.pt"
    with path.open("wb") as file:
        writer = open_writer(file)
        for sample in samples:
            writer.write(sample)
        writer.finish()
        writer.release()
    assert read(path) == {"rollout_id": 0, "samples": slime.records(samples)}


def test_the_same_samples_give_the_same_bytes(tmp_path: Path) -> None:
    for name in ("one", "two"):
        export(batch([sound("r0"), sound("r1")]), "slime", tmp_path / name)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()
    (first, second) = read(tmp_path / "one")["samples"]
    assert [first["rollout_id"], second["rollout_id"]] == [0, 1]
    assert first["group_index"] == second["group_index"] == 0


def test_an_export_that_stops_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no reward"):
        export(batch([sound("r0", reward=None)]), "slime", tmp_path / "out", dispositions={"r0": USED})
    assert names(tmp_path) == []


def test_torch_reads_it(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    export(batch([sound("r0")]), "slime", tmp_path / "out.pt")
    for safely in (True, False):
        loaded = torch.load(tmp_path / "out.pt", weights_only=safely)
        assert loaded == read(tmp_path / "out.pt")
