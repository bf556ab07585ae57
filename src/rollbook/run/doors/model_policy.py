"""A policy over a causal language model of transformers: what a trainer trains is what samples.

Rules: one request at a time, each in a thread, with its own seed; the logprobs are of the softmax of the logits divided
by the temperature, in float32, which is what is sampled. Truncation, penalties, stop strings and grammars are refused:
a trainer's own logprobs know nothing of them. Weights are read as they are at each request; whoever changes them sets
`version`, and nobody may while a request runs.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch

from rollbook.envs.offloop import off_loop
from rollbook.errors import UsageError
from rollbook.policy.protocol import Completion, PolicyInfo, TokenIds
from rollbook.trace import Finish, LogprobKind, Sampling

__all__ = ["ModelPolicy", "refuse_sampling"]


def refuse_sampling(sampling: Sampling) -> None:
    """Raises `UsageError` for what such a model does not sample with."""
    if sampling.truncates or sampling.temperature <= 0:
        raise UsageError(
            "a model that trains samples from its own distribution, at a temperature above 0: leave out top-k, top-p, "
            "min-p, penalties and grammar"
        )
    if sampling.stop:
        raise UsageError("a model that trains stops at its end-of-turn tokens: leave out stop strings")


class ModelPolicy:
    """Samples from `model`, a causal language model of transformers on any device."""

    def __init__(
        self,
        model: Any,
        stop_ids: Iterable[int],
        *,
        name: str = "model",
        context_length: int | None = None,
        version: int | None = None,
    ) -> None:
        """`stop_ids`: tokens that end a turn. `context_length`: None: what the model's configuration says. `version`:
        of the weights; None: nobody counts."""
        self.model, self.stop_ids, self.version = model, frozenset(stop_ids), version
        told: int | None = getattr(model.config, "max_position_embeddings", None)
        self._info = PolicyInfo(
            name=name,
            engine=f"transformers ({type(model).__name__})",
            context_length=told if context_length is None else context_length,
            logprob_kind=LogprobKind.PROCESSED,
        )
        self._turn = threading.Lock()
        named = inspect.signature(model.forward).parameters
        self._cache = "past_key_values" if "past_key_values" in named else "cache"  # as transformers calls it

    @property
    def info(self) -> PolicyInfo:
        return self._info

    async def start(self) -> None:
        """Nothing to bring up."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        del session
        refuse_sampling(sampling)
        gone = threading.Event()
        try:
            return await off_loop(self._sample, prompt, sampling, gone)
        except asyncio.CancelledError:
            gone.set()
            raise

    async def close(self) -> None:
        """Nothing to free: the model is the trainer's."""

    def _sample(self, prompt: TokenIds, sampling: Sampling, gone: threading.Event) -> Completion:
        with self._turn, torch.no_grad():
            ids, logprobs = self._generate(prompt, sampling, gone)
            version = self.version
        stopped = ids[-1] in self.stop_ids | set(sampling.stop_token_ids)
        return Completion(
            token_ids=np.array(ids, np.int32),
            logprobs=np.array(logprobs, np.float32),
            logprob_kind=LogprobKind.PROCESSED,
            finish=Finish.STOP if stopped else Finish.LENGTH,
            engine_finish="stop" if stopped else "length",
            versions=() if version is None else ((version, len(ids)),),
            prompt_tokens=len(prompt),
        )

    def _generate(self, prompt: TokenIds, sampling: Sampling, gone: threading.Event) -> tuple[list[int], list[float]]:
        """At least one token, and up to `sampling.max_tokens`."""
        chance = torch.Generator()
        if sampling.seed is not None:
            chance.manual_seed(sampling.seed)
        else:
            chance.seed()
        ends = self.stop_ids | set(sampling.stop_token_ids)
        ids: list[int] = []
        logprobs: list[float] = []
        step, past = torch.tensor(prompt.tolist(), device=self.model.device)[None], None
        while not ids or not (ids[-1] in ends or len(ids) == sampling.max_tokens or gone.is_set()):
            out = self.model(input_ids=step, use_cache=True, logits_to_keep=1, **{self._cache: past})
            spread = torch.log_softmax(out.logits[0, -1].float().cpu() / sampling.temperature, -1)
            drawn = torch.multinomial(spread.exp(), 1, generator=chance)
            ids.append(int(drawn))
            logprobs.append(float(spread[drawn]))
            step, past = drawn[None].to(self.model.device), out[self._cache]
        return ids, logprobs
