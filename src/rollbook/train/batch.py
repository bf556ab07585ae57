"""Samples as tensors, and what each trained token weighs.

Rules. The rollouts of a batch weigh the same, whatever their length and however many branches they have: a trained
token weighs 1 / (rollouts of the batch * trained tokens of its rollout). A token that does not train has no weight, no
advantage and no place in the loss; it is context. Rows are padded at their right end only, where a causal model does
not look, and cut into micro-batches of so many padded tokens; what a sample contributes depends on the batch's
rollouts alone. Samples without an advantage, or whose tokens were drawn from another distribution than the model's own,
are refused: they have no place in the loss.
"""

# pyright: reportUnknownMemberType=false
# (torch is typed in part)

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import torch

from rollbook.errors import ConfigError, UsageError
from rollbook.export.doors.admission import admitted, where
from rollbook.trace.sample import Sample

__all__ = ["MicroBatch", "check_samples", "micro_batches"]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class MicroBatch:
    """Rows that go through the model together. Flat arrays are over the trained tokens, row after row."""

    samples: tuple[Sample, ...]
    """One a row, in order."""
    token_ids: torch.Tensor
    """int64, shape (rows, longest); 0 behind a row's end."""
    trained: torch.Tensor
    """bool, shape (rows, longest): the token trains. Never in the first column, for nothing predicts it."""
    behaviour: torch.Tensor
    """float32, shape (trained,): the engine's logprob; NaN where it gave none."""
    advantages: torch.Tensor
    """float32, shape (trained,)."""
    weights: torch.Tensor
    """float32, shape (trained,): they add up to 1 over a batch."""
    versions: torch.Tensor
    """int64, shape (trained,): the policy version that sampled it; -1 where not known."""
    row_sizes: tuple[int, ...]
    """Trained tokens of each row."""

    @property
    def teaches(self) -> bool:
        """False where every advantage is 0, so that the policy gradient is exactly 0."""
        return bool(self.advantages.any())


def check_samples(samples: Sequence[Sample]) -> None:
    """Raises `UsageError` or `RecordError` for the first sample that cannot be trained from, or is there twice."""
    for sample in admitted(samples, allow_unfit_logprobs=True):
        if sample.advantage is None and sample.advantages is None:
            raise UsageError(f"{where(sample)}: it has no advantage; compute them first, or leave out what has no vote")
        if any(sampling.changes_distribution for sampling in sample.samplings):
            raise UsageError(
                f"{where(sample)}: its tokens were not drawn from the model's own distribution; sample at temperature "
                "1 without top-k, top-p, min-p or penalties"
            )


def micro_batches(samples: Sequence[Sample], budget: int, *, split_flat: bool = False) -> list[MicroBatch]:
    """The batch in micro-batches of at most `budget` padded tokens each, or of one row where that alone is longer.

    Rows go by length, longest first, those of one length in the order given. `split_flat`: those whose advantages are
    all 0 come last, in micro-batches of their own. Raises as `check_samples`, and `ConfigError` for a budget below 1.
    """
    if budget < 1:
        raise ConfigError(f"a micro-batch holds at least 1 token, not {budget}")
    check_samples(samples)
    rollouts = len({(sample.run, sample.rollout) for sample in samples})
    found: list[MicroBatch] = []
    for part in _parts(samples) if split_flat else (list(samples),):
        rows = sorted(part, key=len, reverse=True)
        while rows:
            count = max(1, budget // len(rows[0]))
            found.append(_micro_batch(rows[:count], rollouts))
            rows = rows[count:]
    return found


def _parts(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    teaching = [sample for sample in samples if _advantages(sample).any()]
    return teaching, [sample for sample in samples if not _advantages(sample).any()]


def _advantages(sample: Sample) -> npt.NDArray[np.float32]:
    """float32, shape (trained,)."""
    if sample.advantages is not None:
        return sample.advantages[sample.loss_mask]
    return np.full(np.count_nonzero(sample.loss_mask), sample.advantage, np.float32)


def _micro_batch(rows: Sequence[Sample], rollouts: int) -> MicroBatch:
    shape = len(rows), max(map(len, rows))
    token_ids, trained = np.zeros(shape, np.int64), np.zeros(shape, np.bool_)
    for row, sample in enumerate(rows):
        token_ids[row, : len(sample)] = sample.token_ids
        trained[row, : len(sample)] = sample.loss_mask
    sizes = trained.sum(axis=1)
    each = np.array([1.0 / (rollouts * sample.rollout_trained) for sample in rows], np.float64)
    return MicroBatch(
        samples=tuple(rows),
        token_ids=torch.from_numpy(token_ids),
        trained=torch.from_numpy(trained),
        behaviour=torch.from_numpy(np.concatenate([sample.logprobs[sample.loss_mask] for sample in rows])),
        advantages=torch.from_numpy(np.concatenate([_advantages(sample) for sample in rows])),
        weights=torch.from_numpy(each.repeat(sizes).astype(np.float32)),
        versions=torch.from_numpy(
            np.concatenate([sample.policy_version[sample.loss_mask] for sample in rows]).astype(np.int64)
        ),
        row_sizes=tuple(sizes.tolist()),
    )
