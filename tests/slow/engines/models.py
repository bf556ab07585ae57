"""One model in the forms that engines read, made of the GGUF file that Rollbook fetches: dequantised once.

- ``hf``: a folder for vLLM and torch, float32 weights, with the tokenizer and the template of the GGUF file; the head
  is written out, as in `rollbook.run.training_weights`;
- ``hf-changed``: the same with the last norm's weights scaled, so that its logprobs are clearly others;
- ``f32.gguf``: for llama.cpp, the same numbers without rounding.

So every engine computes the same function, up to the number format that it computes in.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from rollbook.models import ModelFiles, read_tensors, write_gguf, write_hf_folder

__all__ = ["EngineModels", "make_models"]

CHANGED = 0.6
"""The factor of the changed copy's last norm: a flatter distribution."""
DONE = "done.json"
LAST_NORM = "model.norm.weight"
EMBEDDING, HEAD = "model.embed_tokens.weight", "lm_head.weight"


@dataclass(frozen=True, slots=True)
class EngineModels:
    """Where the forms lie."""

    folder: Path

    @property
    def hf(self) -> Path:
        return self.folder / "hf"

    @property
    def changed(self) -> Path:
        return self.folder / "hf-changed"

    @property
    def gguf(self) -> Path:
        return self.folder / "f32.gguf"


def make_models(files: ModelFiles, folder: Path) -> EngineModels:
    """All forms of `files`, made where they are not there yet."""
    made = EngineModels(folder)
    done = folder / DONE
    if done.is_file() and json.loads(done.read_text()) == _made_of(files):
        return made
    assert files.weights is not None
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    tensors = read_tensors(files.weights)
    write_gguf(made.gguf, files.weights, tensors)
    for place, factor in ((made.hf, 1.0), (made.changed, CHANGED)):
        changed = tensors[LAST_NORM] * np.float32(factor)
        write_hf_folder(files, {HEAD: tensors[EMBEDDING], **tensors, LAST_NORM: changed}, place)
    done.write_text(json.dumps(_made_of(files)))
    return made


def _made_of(files: ModelFiles) -> dict[str, str | None]:
    return {"weights": files.weights_hash, "head": "written out"}
