"""One optimiser step from the samples of one batch.

Rules. The gradient is that of the whole batch, added up over micro-batches in a fixed order, so the same samples give
the same gradient bit for bit. Samples that teach nothing (every advantage 0, and no KL term) go through the model
without a gradient, for their logprobs are compared with the engine's all the same. Those are taken before the step, by
the weights that the batch was trained on.
"""

# pyright: reportUnknownMemberType=false
# (torch is typed in part)

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec
import numpy as np
import torch

from rollbook.errors import ConfigError, UsageError
from rollbook.trace.facts import Mismatch
from rollbook.trace.sample import Sample
from rollbook.train.batch import MicroBatch, micro_batches
from rollbook.train.loss import LossRules, policy_loss
from rollbook.train.mismatch import compare, together

__all__ = ["Learned", "Learner", "LearnerConfig", "TokenModel"]

LARGEST_LR = 1e3
"""What is larger is a slip of the pen."""


class TokenModel(Protocol):
    """A model that gives the logprobs of tokens, with a gradient."""

    def parameters(self) -> Iterable[torch.nn.Parameter]:
        """What is trained."""
        ...

    def logprobs(self, token_ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """The logprob of each wanted token, given all tokens before it in its row, at temperature 1.

        `token_ids`: int64, shape (rows, tokens), padded at the right. `wanted`: bool, the same shape. Returns float32,
        shape (wanted,), row after row.
        """
        ...


class LearnerConfig(msgspec.Struct, frozen=True, kw_only=True):
    """How a learner learns."""

    lr: float = 5e-4
    """Of Adam (betas 0.9 and 0.99, no weight decay)."""
    loss: LossRules = LossRules()
    budget: int = 4096
    """Padded tokens of one micro-batch."""
    max_norm: float = 1.0
    """The longest gradient; a longer one is scaled down."""

    def __post_init__(self) -> None:
        if not (0 < self.lr <= LARGEST_LR and self.max_norm > 0):
            raise ConfigError(
                f"'lr' is above 0 and at most {LARGEST_LR:g}, and 'max_norm' above 0, not {self.lr:g} and "
                f"{self.max_norm:g}"
            )


class Learned(msgspec.Struct, frozen=True, kw_only=True):
    """What one batch did."""

    rollouts: int
    samples: int
    tokens: int
    """Trained tokens."""
    loss: float
    norm: float | None
    """Of the gradient, before it was scaled; None: no step was made."""
    kl: float
    """The weighted k3 to the reference; 0.0 without one."""
    corrected: int
    """Tokens whose importance ratio was cut or masked."""
    late: int
    """Tokens that were too many versions behind."""
    lags: dict[int, int]
    """Trained tokens by how many versions they were behind; -1: not known."""
    mismatch: Mismatch
    """Of the whole batch."""
    by_rollout: dict[str, Mismatch]


class Learner:
    """A model, its optimiser, and what a batch does to them."""

    def __init__(
        self, model: TokenModel, config: LearnerConfig | None = None, *, reference: TokenModel | None = None
    ) -> None:
        """`reference`: what the KL term holds the model to; needed where there is one (`ConfigError`)."""
        self.model, self.config, self._reference = model, config or LearnerConfig(), reference
        if self.config.loss.kl and reference is None:
            raise ConfigError("a KL term needs a reference model")
        self._optimiser = torch.optim.Adam(model.parameters(), lr=self.config.lr, betas=(0.9, 0.99))

    def gradient(self, samples: Sequence[Sample], *, version: int | None = None) -> Learned:
        """Leave the gradient of the batch on the parameters, in place of what is there. `version`: the trainer's.

        Raises `UsageError` where there are no samples or one of them cannot be trained from.
        """
        if not samples:
            raise UsageError("there is nothing to learn from: no rollout of this batch has a vote")
        loss, kl, corrected, late = 0.0, 0.0, 0, 0
        behaviour: dict[str, list[np.ndarray]] = {}
        trainer: dict[str, list[np.ndarray]] = {}
        rules = self.config.loss
        batches = micro_batches(samples, self.config.budget, split_flat=not rules.kl)
        self._optimiser.zero_grad(set_to_none=True)
        for batch in batches:
            learns = batch.teaches or rules.kl > 0
            with torch.set_grad_enabled(learns):
                logprobs = self.model.logprobs(batch.token_ids, batch.trained)
                parts = policy_loss(logprobs, batch, rules, reference=self._referred(batch), version=version)
            if learns:
                parts.loss.backward()
            loss, kl = loss + float(parts.loss.detach()), kl + parts.kl
            corrected, late = corrected + parts.corrected, late + parts.late
            _file(behaviour, batch, batch.behaviour)
            _file(trainer, batch, logprobs.detach())
        found = {
            rollout: compare(np.concatenate(behaviour[rollout]), np.concatenate(rows), version=version)
            for rollout, rows in trainer.items()
        }
        return Learned(
            rollouts=len(found),
            samples=len(samples),
            tokens=sum(sum(batch.row_sizes) for batch in batches),
            loss=loss,
            norm=None,
            kl=kl,
            corrected=corrected,
            late=late,
            lags=_lags(batches, version),
            mismatch=together(found.values(), version=version),
            by_rollout=found,
        )

    def step(self, samples: Sequence[Sample], *, version: int | None = None) -> Learned:
        """Learn from the batch. Where it teaches nothing the weights stay as they are, momentum included. Raises as
        `gradient`, and `UsageError` where the gradient is not finite (the weights are then untouched), or what comes of
        the weights is not."""
        learned = self.gradient(samples, version=version)
        with_gradient = [each for each in self.model.parameters() if each.grad is not None]
        if not with_gradient:
            return learned
        norm = float(torch.nn.utils.clip_grad_norm_(with_gradient, self.config.max_norm))
        if not np.isfinite(norm):
            raise UsageError(f"the gradient's length is {norm}: lower the learning rate, and look at the mismatch")
        self._optimiser.step()
        if not all(bool(each.isfinite().all()) for each in with_gradient):
            raise UsageError(
                f"after the step some weights are no finite numbers: lower the learning rate (norm {norm:g})"
            )
        return msgspec.structs.replace(learned, norm=norm)

    def _referred(self, batch: MicroBatch) -> torch.Tensor | None:
        if self._reference is None or not self.config.loss.kl:
            return None
        with torch.no_grad():
            return self._reference.logprobs(batch.token_ids, batch.trained)


def _file(into: dict[str, list[np.ndarray]], batch: MicroBatch, values: torch.Tensor) -> None:
    """Sort values of the trained tokens by rollout."""
    rows = np.split(values.numpy(), np.cumsum(batch.row_sizes)[:-1])
    for sample, row in zip(batch.samples, rows, strict=True):
        into.setdefault(sample.rollout, []).append(row)


def _lags(batches: Sequence[MicroBatch], version: int | None) -> dict[int, int]:
    counts: dict[int, int] = {}
    for batch in batches:
        known = batch.versions.numpy()
        lags = np.where((known >= 0) if version is not None else False, (version or 0) - known, -1)
        for lag, count in zip(*(each.tolist() for each in np.unique(lags, return_counts=True)), strict=True):
            counts[lag] = counts.get(lag, 0) + count
    return dict(sorted(counts.items()))
