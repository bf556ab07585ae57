"""Estimators that compare whole rewards within one group. n members, r_i their rewards, m their mean.

A group of one, and one whose rewards are equal, gives exactly 0 in each of them: there is nobody to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rollbook.errors import ConfigError
from rollbook.rewards.estimators.statistics import centred, constant, mean, normalised
from rollbook.rewards.estimators.votes import Credit, Vote

__all__ = ["dr_grpo", "grpo", "maxrl", "opo", "pass_at_k", "rewards_of", "rloo"]


def rewards_of(votes: Sequence[Vote]) -> dict[str, float]:
    """Reward by rollout."""
    return {vote.rollout: vote.reward for vote in votes}


def dr_grpo(votes: Sequence[Vote]) -> Credit:
    """``r_i - m``, undivided (Dr. GRPO, arXiv 2503.20783, whose other half is a loss that does not divide by a
    sequence's own length)."""
    return Credit(values=centred(rewards_of(votes)))


def grpo(votes: Sequence[Vote]) -> Credit:
    """``(r_i - m) / s`` with the sample standard deviation s (n - 1) and nothing added to it (GRPO, DeepSeekMath, arXiv
    2402.03300; implementations add 1e-4 to 1e-8). At most ``(n - 1) / sqrt(n)`` in size."""
    return Credit(values=normalised(rewards_of(votes)))


def rloo(votes: Sequence[Vote]) -> Credit:
    """``r_i`` minus the mean of the others, which is ``n / (n - 1) * (r_i - m)`` (RLOO, arXiv 2402.14740; Kool et al.
    2019). n is the number of those that vote."""
    factor = len(votes) / max(len(votes) - 1, 1)
    return Credit(values={rollout: factor * value for rollout, value in centred(rewards_of(votes)).items()})


def opo(votes: Sequence[Vote]) -> Credit:
    """``r_i - sum(l_j r_j) / sum(l_j)`` with l_j the tokens that member j sampled (OPO, arXiv 2505.23585: the baseline
    of least variance where the gradient's size grows with the length). Where nobody counted tokens (text-only
    engines) all members weigh the same."""
    rewards = rewards_of(votes)
    tokens = sum(vote.sampled for vote in votes)
    if constant(rewards.values()) or not tokens:
        return dr_grpo(votes)
    baseline = math.fsum(vote.reward * (vote.sampled / tokens) for vote in votes)
    return Credit(values={rollout: reward - baseline for rollout, reward in rewards.items()})


def maxrl(votes: Sequence[Vote]) -> Credit:
    """``(r_i - m) / m`` (MaxRL, arXiv 2602.02710: for rewards of 0 and 1 an estimate of the gradient of the log of the
    success rate). At most n - 1 in size. Raises `ConfigError` for a negative reward, for which it is not defined."""
    rewards = rewards_of(votes)
    negative = sorted(rollout for rollout, reward in rewards.items() if reward < 0)
    if negative:
        raise ConfigError(
            f"maxrl divides by the mean reward, which needs rewards of 0 and more; negative ones have {negative}: use "
            "another estimator, or rewards that are not negative"
        )
    off = centred(rewards)
    if constant(rewards.values()):
        return Credit(values=off)
    middle = max(mean(rewards.values()), math.ulp(0.0))  # a mean may be rounded down to 0
    return Credit(values={rollout: value / middle for rollout, value in off.items()})


def pass_at_k(votes: Sequence[Vote]) -> Credit:
    """The best member gets the gap to the second, everybody else 0: ``max(r) - max(r without i)``, the leave-one-out
    advantage of the group's best reward (arXiv 2503.19595). Two that share the best place get 0."""
    rewards = rewards_of(votes)
    values = dict.fromkeys(rewards, 0.0)
    ranked = sorted(votes, key=lambda vote: vote.reward, reverse=True)
    if len(ranked) > 1 and not constant([ranked[0].reward, ranked[1].reward]):
        values[ranked[0].rollout] = ranked[0].reward - ranked[1].reward
    return Credit(values=values)
