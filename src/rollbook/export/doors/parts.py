"""What doors take out of a sample, and refuse together.

Rules: entry t of every array is about token t, as in the sample; what a trainer has no sign for is refused with the
remedy and never stands as 0. Off the mask a trainer reads nothing, and there 0 is written.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.trace.sample import Sample

__all__ = ["advantages", "by_rollout", "logprobs", "place", "require_trained", "reward"]


def place(sample: Sample) -> str:
    """Which sample an error is about."""
    return f"rollout {sample.rollout!a}, branch {sample.branch}"


def require_trained(sample: Sample) -> None:
    """Raises `UsageError` where no token trains: there are no placeholder rows."""
    if not sample.loss_mask.any():
        raise UsageError(f"{place(sample)}: it trains no token; leave it out, for a trainer has no row for nothing")


def logprobs(sample: Sample, trainer: str) -> npt.NDArray[np.float32]:
    """Behaviour logprobs, float32 (tokens,): 0.0 off the loss mask. Raises `UsageError` where a trained token has none,
    or one that is not finite."""
    require_trained(sample)
    given = np.where(sample.loss_mask, sample.logprobs, np.float32(0))
    if not np.isfinite(given).all():
        raise UsageError(
            f"{place(sample)}: a trained token has no logprob, and {trainer} has no sign for that; use an engine that "
            "returns the logprob of every sampled token, or take the turn out of the loss"
        )
    return given


def reward(sample: Sample, trainer: str) -> float:
    """The rollout's reward. Raises `UsageError` where it has none, or one that is not finite."""
    if sample.reward is None or not math.isfinite(sample.reward):
        raise UsageError(
            f"{place(sample)}: it has no reward, and {trainer} has no sign for that; score it again, or leave the "
            "rollout out"
        )
    return sample.reward


def advantages(sample: Sample, trainer: str) -> npt.NDArray[np.float32]:
    """The advantage of each trained token, float32 (tokens,): 0.0 off the loss mask. Raises `UsageError` where one has
    none."""
    require_trained(sample)
    given = _advantages(sample)
    if given is None or not np.isfinite(given[sample.loss_mask]).all():
        raise UsageError(
            f"{place(sample)}: it has no advantage, and {trainer} computes none; give those of `rollbook.advantages`"
        )
    return np.where(sample.loss_mask, given, np.float32(0))


def by_rollout(samples: Iterable[Sample]) -> list[list[Sample]]:
    """The samples of each rollout together, branches in their order, rollouts in the order of first appearance."""
    found: dict[tuple[str, str], list[Sample]] = {}
    for sample in samples:
        found.setdefault((sample.run, sample.rollout), []).append(sample)
    return [sorted(rows, key=lambda sample: sample.branch) for rows in found.values()]


def _advantages(sample: Sample) -> npt.NDArray[np.float32] | None:
    if sample.advantage is None:
        return None
    return np.full(len(sample), sample.advantage, np.float32)
