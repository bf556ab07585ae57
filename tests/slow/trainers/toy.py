"""A policy small enough to see through: the made-up rollouts' own table as a torch module.

Its logprobs are those of `rollbook.export.conformance.made`, so a trainer that shifts rightly gets the behaviour
logprobs back; the gradient of a token's logprob touches the row of the token before it only.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch

from rollbook.export.conformance.made import VOCABULARY, cases, made_up_samples, table_logprobs
from rollbook.trace.sample import Sample

LINEAR = ("one_turn", "two_turns", "masked_end", "cut", "two_versions")
"""Made-up rollouts of one branch."""


def made(*names: str) -> list[Sample]:
    """The samples of these made-up rollouts."""
    by_name = {case.name: case for case in cases()}
    return made_up_samples([by_name[name] for name in names])


class Table(torch.nn.Module):
    """Logits of the next token by the token before it."""

    def __init__(self) -> None:
        super().__init__()
        pairs = np.stack(np.meshgrid(np.arange(VOCABULARY), np.arange(VOCABULARY), indexing="ij"), axis=-1)
        given = [[float(table_logprobs(pair)[1]) for pair in row] for row in pairs]
        self.rows = torch.nn.Parameter(torch.tensor(given, dtype=torch.float32))

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Logits, shape (..., tokens, vocabulary): entry t predicts token t + 1."""
        return self.rows[ids]


def token_logprobs(model: Table, ids: torch.Tensor) -> torch.Tensor:
    """Of each token but the first, shape (..., tokens - 1)."""
    logprobs = torch.log_softmax(model(ids[..., :-1]), dim=-1)
    return logprobs.gather(-1, ids[..., 1:, None])[..., 0]


def wants(samples: Sequence[Sample]) -> list[tuple[int, float]]:
    """(trained tokens, advantage) of each sample."""
    return [(int(each.loss_mask.sum()), float(each.advantage or 0.0)) for each in samples]
