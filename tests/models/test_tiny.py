"""The model that comes with the package: its files are there, known by their sum, and described."""

from __future__ import annotations

import hashlib
import re
import shutil
from importlib import resources
from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ModelError
from rollbook.models import SHIPPED, load_model, read_tensors
from rollbook.models import names as model_names

FOLDER = resources.files("rollbook.models") / "tiny"


def test_it_is_package_data_with_its_card() -> None:
    data, card = (FOLDER / "tiny.gguf").read_bytes(), (FOLDER / "MODEL.md").read_text()
    digest = hashlib.sha256(data).hexdigest()
    assert digest == SHIPPED["tiny"].sha256
    assert f"`{digest}`" in card
    assert f"{len(data):,} bytes" in card
    assert "Apache-2.0" in card
    assert len(data) < 5_000_000


def test_the_card_has_the_figures_of_the_file(tmp_path: Path) -> None:
    tiny = load_model("tiny", tmp_path)
    assert tiny.weights is not None
    tensors = read_tensors(tiny.weights)
    count = re.search(r"A Llama of ([\d,]+) weights", (FOLDER / "MODEL.md").read_text())
    assert count is not None
    assert int(count[1].replace(",", "")) == sum(array.size for array in tensors.values())
    assert tensors["model.layers.3.self_attn.q_proj.weight"].shape == (128, 128)
    assert "lm_head.weight" not in tensors


def test_its_files_say_what_others_need(tmp_path: Path) -> None:
    tiny = load_model("tiny", tmp_path)
    assert (tiny.name, tiny.float32, tiny.context_length, tiny.licence) == ("tiny", True, 1024, "apache-2.0")
    assert tiny.stop_ids == {0, 2}
    assert tiny.special_tokens["eos_token"] == "<|im_end|>"
    assert tiny.adds_bos is False


def test_another_file_in_its_place_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    changed = tmp_path / "tiny.gguf"
    shutil.copy(SHIPPED["tiny"].path, changed)
    data = bytearray(changed.read_bytes())
    data[-100] ^= 1
    changed.write_bytes(data)
    monkeypatch.setitem(model_names.SHIPPED, "tiny", msgspec.structs.replace(SHIPPED["tiny"], path=changed))
    with pytest.raises(ModelError, match=r"not the tiny that comes with this version.*install"):
        load_model("tiny", tmp_path)
