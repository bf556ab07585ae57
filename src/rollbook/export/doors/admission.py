"""What every door refuses, and the pieces that several of them cut a sample into.

Rules: refused are no samples at all, a row that trains nothing, a first token that trains (no causal model predicts
it), a trained token without a logprob and logprobs of another distribution than was sampled (unless the caller says
that its trainer corrects them), and two samples that say they are the same branch. Off the loss a number is exactly 0,
so that a trainer that multiplies by its mask gets exactly 0 and never a NaN.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.fields import check_sample
from rollbook.export.fitness import unfit
from rollbook.trace.sample import Sample

__all__ = ["admitted", "loss_logprobs", "refuse_branches", "reward_of", "token_advantages", "where"]


def admitted(samples: Sequence[Sample], *, allow_unfit_logprobs: bool) -> list[Sample]:
    """The samples, those of one rollout together (in the order of their first, and by branch); raises `UsageError`
    or `RecordError` for what no trainer can use."""
    if not samples:
        raise UsageError("there are no samples: no rollout of this batch trains")
    by_rollout: dict[tuple[str, str], dict[int, Sample]] = {}
    for sample in samples:
        check_sample(sample)
        _check_positions(sample)
        if not allow_unfit_logprobs and (problem := unfit(sample)) is not None:
            raise UsageError(problem)
        branches = by_rollout.setdefault((sample.run, sample.rollout), {})
        if sample.branch in branches:
            raise UsageError(f"{where(sample)} is there twice: its tokens would train twice")
        branches[sample.branch] = sample
    return [branches[index] for branches in by_rollout.values() for index in sorted(branches)]


def refuse_branches(samples: Sequence[Sample], why: str) -> None:
    """Raises `UsageError` where two samples, as `admitted` gives them, are of one rollout. `why`: what the trainer
    lacks for them, and the remedy."""
    for one, other in pairwise(samples):
        if (one.run, one.rollout) == (other.run, other.rollout):
            raise UsageError(f"{where(other)}: {why}")


def _check_positions(sample: Sample) -> None:
    if sample.loss_mask[0]:
        raise UsageError(f"{where(sample)}: its first token trains, and no model predicts a first token")
    if not sample.sampled[sample.loss_mask].all():
        raise UsageError(f"{where(sample)}: a token trains that was not sampled")


def loss_logprobs(sample: Sample) -> npt.NDArray[np.float32]:
    """float32, shape (tokens,): behaviour logprobs of the tokens that train, exactly 0 elsewhere. Raises `UsageError`
    where one is absent: absent is not 0."""
    found = np.where(sample.loss_mask, sample.logprobs, np.float32(0)).astype(np.float32)
    if not np.isfinite(found).all():
        raise UsageError(f"{where(sample)}: a token that trains has no logprob, and this trainer needs one for each")
    return found


def token_advantages(sample: Sample) -> npt.NDArray[np.float32]:
    """float32, shape (tokens,): the advantage of each token that trains, exactly 0 elsewhere. Raises `UsageError`
    where none was computed."""
    if sample.advantages is not None:
        return np.where(sample.loss_mask, sample.advantages, np.float32(0)).astype(np.float32)
    if sample.advantage is None:
        raise UsageError(f"{where(sample)} has no advantage, for its group was never closed: finish the run")
    return np.where(sample.loss_mask, np.float32(sample.advantage), np.float32(0)).astype(np.float32)


def reward_of(sample: Sample) -> float:
    """The reward of the sample's rollout; raises `UsageError` where there is none: absent is not 0."""
    if sample.reward is None:
        raise UsageError(f"{where(sample)} has no reward, and this trainer computes the advantage from it")
    return sample.reward


def where(sample: Sample) -> str:
    """Names a sample, for messages."""
    return f"rollout {sample.rollout!a}, branch {sample.branch}"
