"""The embedded engine over a model's files, before it is started."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from rollbook.errors import ModelError
from rollbook.models import ModelFiles, load_folder
from rollbook.policy.local import LocalPolicy
from rollbook.run.embedded import CONTEXT_LENGTH, open_embedded
from tests.run.run_made import model_folder


@pytest.fixture
def files(tmp_path: Path) -> ModelFiles:
    return load_folder(model_folder(tmp_path))


@pytest.mark.parametrize(
    ("trained", "given"), [(None, CONTEXT_LENGTH), (512, 512), (10 * CONTEXT_LENGTH, CONTEXT_LENGTH)]
)
def test_the_context_is_never_longer_than_the_model_knows(files: ModelFiles, trained: int | None, given: int) -> None:
    model = msgspec.structs.replace(files, weights=Path("model.gguf"), context_length=trained)
    info = open_embedded("local:model.gguf", model).info
    assert (info.name, info.context_length) == ("local:model.gguf", given)


@pytest.mark.parametrize("float32", [True, False])
def test_float32_weights_are_computed_in_float32(files: ModelFiles, float32: bool) -> None:
    model = msgspec.structs.replace(files, weights=Path("model.gguf"), float32=float32)
    policy = open_embedded("local:model.gguf", model)
    assert isinstance(policy, LocalPolicy)
    assert policy.config.float32 is float32


def test_a_tokenizer_folder_has_no_weights(files: ModelFiles) -> None:
    with pytest.raises(ModelError, match="holds no weights"):
        open_embedded("local:x", files)
