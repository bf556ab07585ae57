"""Toy models and small batches for the tests of training."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import torch

from rollbook.rewards import advantages, dispositions
from rollbook.trace import MemorySink, Trace, samples
from rollbook.trace.sample import Sample
from rollbook.train.model import selected_logprobs
from tests.export.build import end, start, turn

VOCABULARY = 128


class Toy(torch.nn.Module):
    """Each token is predicted from the mean of those before it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        made = torch.Generator().manual_seed(seed)
        self.embedding = torch.nn.Parameter(torch.randn(VOCABULARY, 16, generator=made))
        self.head = torch.nn.Parameter(torch.randn(16, VOCABULARY, generator=made))

    def logprobs(self, token_ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        embedded = self.embedding[token_ids]
        before = embedded.cumsum(1) / torch.arange(1, token_ids.shape[1] + 1)[:, None]
        logits = torch.tanh(before[:, :-1])[wanted[:, 1:]] @ self.head
        return selected_logprobs(logits, token_ids[wanted])


class Logits(torch.nn.Module):
    """Logits that are parameters themselves, one vector a place: their gradient shows which places are in the loss."""

    def __init__(self, rows: int, tokens: int) -> None:
        super().__init__()
        self.logits = torch.nn.Parameter(torch.zeros(rows, tokens, VOCABULARY))

    def logprobs(self, token_ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        rows, tokens = token_ids.shape
        every = torch.log_softmax(self.logits[:rows, :tokens], -1)
        return every.gather(2, token_ids[:, :, None])[:, :, 0][wanted]


def member(
    rollout: str,
    ids: Sequence[int],
    reward: float | None,
    *,
    group: str = "g0",
    logprobs: Sequence[float] | None = None,
) -> Trace:
    """A rollout with one turn."""
    return end(turn(start(rollout, group=group), ids, logprobs=logprobs), reward=reward)


def trained(source: Iterable[Trace]) -> list[Sample]:
    """The samples of a batch: the ending rules, the advantages of its groups, and what is left."""
    traces = list(source)
    decided = dispositions(traces)
    values = {rollout: value for each in advantages(traces).groups for rollout, value in each.values.items()}
    return [
        sample
        for trace in traces
        for sample in samples(trace, disposition=decided[trace.id], advantage=values.get(trace.id))
    ]


def kept(traces: Iterable[Trace]) -> MemorySink:
    sink = MemorySink()
    for trace in traces:
        sink.seal(trace)
    return sink


def gradient(model: torch.nn.Module) -> dict[str, np.ndarray]:
    """Of each parameter; all zeros where it has none."""
    return {
        name: np.zeros(tuple(each.shape), np.float32) if each.grad is None else each.grad.numpy().copy()
        for name, each in model.named_parameters()
    }


def same(one: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> bool:
    """True where they are equal bit for bit."""
    return one.keys() == other.keys() and all(one[name].tobytes() == other[name].tobytes() for name in one)
