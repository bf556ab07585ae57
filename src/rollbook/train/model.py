"""A Llama over transformers, made from named arrays and given back as such: nothing is fetched or read here."""

# pyright: reportUnknownMemberType=false, reportUnknownVariableType=false, reportUnknownArgumentType=false
# pyright: reportMissingTypeStubs=false, reportPrivateImportUsage=false
# (transformers is typed in part; this is the one module that touches it)

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from rollbook.errors import ModelError, boundary

__all__ = ["LlamaModel", "selected_logprobs"]

HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"


class LlamaModel:
    """The model as the learner wants it: float32 weights; no dropout, for the engine has none."""

    def __init__(
        self, config: Mapping[str, Any], tensors: Mapping[str, npt.NDArray[np.float32]], *, bfloat16: bool = False
    ) -> None:
        """`config`: the fields of a ``config.json``. `tensors`: by the names of a ``model.safetensors``, copied;
        without ``lm_head.weight`` the embedding serves as head. `bfloat16`: multiply matrices in it, which is faster
        on some machines and costs closeness to the engine. Raises `ModelError` where names or shapes do not fit.
        """
        tied = HEAD not in tensors
        fields: dict[str, Any] = {
            key: value for key, value in config.items() if key not in ("architectures", "model_type")
        }
        with boundary("these weights make no Llama", ModelError):
            llama = cast("Any", LlamaConfig)(**{**fields, "tie_word_embeddings": tied, "attention_dropout": 0.0})
            with torch.device("meta"):
                self._model = LlamaForCausalLM(llama)
            state = {name: torch.from_numpy(np.array(each, np.float32)) for name, each in tensors.items()}
            self._load(state, tied)
        self._bfloat16 = bfloat16

    def _load(self, state: dict[str, torch.Tensor], tied: bool) -> None:
        if tied:
            state[HEAD] = state[EMBEDDING]
        self._model.load_state_dict(state, strict=True, assign=True)
        if tied:
            self._model.tie_weights()
        rotary = cast("Any", self._model.model.rotary_emb)
        self._model.model.rotary_emb = type(rotary)(config=self._model.config)  # its tables are in no file
        self._model.train(False)
        for each in self._model.parameters():
            each.requires_grad_(True)

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        return self._model.parameters()

    def logprobs(self, token_ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self._bfloat16):
            hidden = self._model.model(input_ids=token_ids, use_cache=False).last_hidden_state
            logits = self._model.lm_head(hidden[:, :-1][wanted[:, 1:]])
        return selected_logprobs(logits.float(), token_ids[wanted])

    def arrays(self) -> dict[str, npt.NDArray[np.float32]]:
        """The weights by name, as `tensors` of the constructor; float32, copies."""
        state = self._model.state_dict()
        tied = state[HEAD].data_ptr() == state[EMBEDDING].data_ptr()
        return {name: each.numpy().copy() for name, each in state.items() if not (tied and name == HEAD)}


def selected_logprobs(logits: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """The logprob of each token under its own logits: float32, shape (tokens, vocabulary) and (tokens,)."""
    return torch.log_softmax(logits, dim=-1).gather(1, tokens[:, None])[:, 0]
