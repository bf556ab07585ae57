"""The weights of a training: read once from the policy's GGUF file, and written for the engine after each step.

Rules. Training is in float32, and so are the files that go to the engine, the first one included: it never samples from
weights that the learner does not hold. The embedded engine gets a GGUF file, an engine behind a URL a folder as
``transformers`` and vLLM read it. Of the files only the newest stays. In the folder the head is written out, also where
it is the embedding: vLLM 0.32 on a CPU packs the head when it loads one, and a model that it holds as tied goes on with
the packed head of the older weights (a mismatch of 0.01 nats at a learning rate of 0.002).
"""

from __future__ import annotations

import shutil
from pathlib import Path

from rollbook.errors import StoreError
from rollbook.models import ModelFiles
from rollbook.models.gguf_tensors import read_tensors, write_gguf
from rollbook.models.hf_folder import hf_config, write_hf_folder
from rollbook.train.model import EMBEDDING, HEAD, LlamaModel

__all__ = ["TrainedWeights"]


class TrainedWeights:
    """What the learner trains, and where it goes."""

    def __init__(self, files: ModelFiles, folder: Path, *, gguf: bool, bfloat16: bool = False) -> None:
        """`files`: of a model with weights. `folder`: for the files that are written, made where it is missing.
        `gguf`: one file for the embedded engine; else a folder. Raises `ModelError` and `StoreError`."""
        self._files, self._folder, self._gguf = files, folder.absolute(), gguf
        self._bfloat16 = bfloat16
        self.model = self._read()
        """What is trained."""
        self._newest: Path | None = None

    def reference(self) -> LlamaModel:
        """The model as it was before the first step."""
        return self._read()

    def _read(self) -> LlamaModel:
        config = hf_config(self._files, tied=True)  # raises where there is no GGUF file
        assert self._files.weights is not None
        tensors = read_tensors(self._files.weights)
        config["tie_word_embeddings"] = HEAD not in tensors
        return LlamaModel(config, tensors, bfloat16=self._bfloat16)

    def write(self, version: int) -> Path:
        """Write the weights as they are now, and drop the files written before. Raises `ModelError`, `StoreError`."""
        assert self._files.weights is not None
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(f"cannot make {self._folder}: {error.strerror}") from error
        path = self._folder / (f"version-{version}.gguf" if self._gguf else f"version-{version}")
        if self._gguf:
            write_gguf(path, self._files.weights, self.model.arrays())
        else:
            arrays = self.model.arrays()
            write_hf_folder(self._files, {HEAD: arrays[EMBEDDING], **arrays}, path)
        earlier, self._newest = self._newest, path
        if earlier is not None:
            earlier.unlink() if self._gguf else shutil.rmtree(earlier)
        return path
