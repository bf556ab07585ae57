"""The training itself, cut short: it writes a model that loads, the same one each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from training.tiny import make

from rollbook.models import load_gguf, load_model, read_tensors


@pytest.fixture
def as_before() -> Iterator[None]:
    """What the training tells torch to do does not outlast it."""
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(False)


@pytest.mark.usefixtures("as_before")
def test_one_step_gives_the_same_file_each_time(tmp_path: Path) -> None:
    first, again = (make(tmp_path / name, steps=1) for name in ("first", "again"))
    assert first["sha256"] == again["sha256"]
    assert first["steps"] == 1
    assert np.log(384) - 1 < first["loss"] < np.log(384) + 1  # knows nothing yet
    files = load_gguf(tmp_path / "first" / "tiny.gguf", tmp_path)
    shipped = load_model("tiny", tmp_path)
    assert (files.tokenizer_hash, files.template_hash) == (shipped.tokenizer_hash, shipped.template_hash)
    assert files.float32
    assert shipped.weights is not None
    wanted = {name: array.shape for name, array in read_tensors(shipped.weights).items()}
    assert {name: array.shape for name, array in read_tensors(tmp_path / "first" / "tiny.gguf").items()} == wanted
