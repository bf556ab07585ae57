"""Estimators with a statistic over a whole batch, so that they need all its groups at once.

Rules: each rollout counts once in the batch's statistics, however many tokens or branches it has (most trainers weigh
it by its tokens here); what is centred within its group has the mean 0 over the batch already, so it is only divided,
and a group of equal rewards stays at exactly 0.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rollbook.rewards.estimators.baselines import rewards_of
from rollbook.rewards.estimators.statistics import EQUAL_WITHIN, centred, constant, deviation, largest, normalised
from rollbook.rewards.estimators.votes import Credit, Vote

__all__ = ["gdpo", "reinforce_pp", "reinforce_pp_baseline"]

PENALTY = "penalty"
"""Names what the ending rules add, as a part of the reward."""
PART_NOISE = 1e-9
"""A part that varies by less than this share of the largest part does not vary."""


def reinforce_pp(groups: Sequence[Sequence[Vote]]) -> list[Credit]:
    """``(r_i - M) / S`` with the mean M and the sample standard deviation S of the batch (REINFORCE++, arXiv
    2501.03262, undiscounted and without a KL term, which is the trainer's). Groups play no part; a batch of one, or of
    equal rewards, gives 0."""
    batch = normalised({vote.rollout: vote.reward for votes in groups for vote in votes})
    return [Credit(values={vote.rollout: batch[vote.rollout] for vote in votes}) for votes in groups]


def reinforce_pp_baseline(groups: Sequence[Sequence[Vote]]) -> list[Credit]:
    """``(r_i - m) / S`` with the group's mean m and the standard deviation S, over the batch, of what is left
    (REINFORCE++-baseline, arXiv 2501.03262). A group of one gives 0."""
    return _divided([centred(rewards_of(votes)) for votes in groups])


def gdpo(groups: Sequence[Sequence[Vote]], weights: Mapping[str, float] | None = None) -> list[Credit]:
    """``sum_k w_k (p_ik - m_k) / s_k`` over the parts k of the reward, each normalised in its group, then divided by
    the standard deviation of that over the batch (GDPO, arXiv 2601.05242).

    `weights`: by part; None, and where a part has none: 1. A member without a part has no vote on it: it is left out of
    that part's statistics and gets nothing from it. A reward without parts is its own part; a penalty of the ending
    rules is one more.
    """
    return _divided([_summed(votes, weights or {}) for votes in groups])


def _summed(votes: Sequence[Vote], weights: Mapping[str, float]) -> dict[str, float]:
    members = [_parts(vote) for vote in votes]
    if any(vote.penalty for vote in votes):
        members = [{**parts, PENALTY: vote.penalty} for parts, vote in zip(members, votes, strict=True)]
    noise = PART_NOISE * largest([value for parts in members for value in parts.values()])
    names = sorted({name for parts in members for name in parts})
    summed = {vote.rollout: 0.0 for vote in votes}
    for name in names:
        given = {vote.rollout: parts[name] for vote, parts in zip(votes, members, strict=True) if name in parts}
        for rollout, value in normalised(given, noise).items():
            summed[rollout] += weights.get(name, 1.0) * value
    return centred(summed, EQUAL_WITHIN * sum(abs(weights.get(name, 1.0)) for name in names))


def _parts(vote: Vote) -> dict[str, float]:
    return vote.parts or {"reward": vote.reward - vote.penalty}


def _divided(groups: Sequence[Mapping[str, float]]) -> list[Credit]:
    batch = [value for values in groups for value in values.values()]
    spread = 1.0 if constant(batch) else deviation(batch)
    return [Credit(values={rollout: value / spread for rollout, value in values.items()}) for values in groups]
