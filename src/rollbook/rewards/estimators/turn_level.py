"""Credit by turn: what a turn and those behind it earned, against what the group had still to earn at that point.

With L_it the reward that rollout i had still to get before its turn t (its whole reward less the rewards of its
turns before t; behind its last turn: what only came at the end), the advantage of turn t is ``L_it`` minus the mean of
``L_jt`` over all n members, where a member that had stopped by then counts with what was left at its stop.

Why so. The mean always has n terms, whatever a rollout does, and n - 1 of them know nothing of it: for every turn the
baseline is (n - 1) / n times one that the rollout's own actions cannot move, plus the same share of its own return, so
the gradient keeps its direction. A mean over those members alone that took a t-th turn has as many terms as the policy
chose to take turns, and its sum over a rollout punishes taking another one (verl issue 7244); that is not offered.
The first turn has the rollout's own advantage, ``r_i - m``; where no turn was given a reward, every turn has.
"""

from __future__ import annotations

from collections.abc import Sequence

from rollbook.rewards.estimators.baselines import rewards_of
from rollbook.rewards.estimators.statistics import EQUAL_WITHIN, centred, largest
from rollbook.rewards.estimators.votes import Credit, Vote

__all__ = ["at_the_end", "noise_of", "turn_level"]


def turn_level(votes: Sequence[Vote]) -> Credit:
    """Return-to-go of each turn against the whole group's (rewards-to-go: Sutton et al. 2000; the group's mean as the
    baseline as in arXiv 2503.20783). The value of a rollout is ``r_i - m``."""
    values = centred(rewards_of(votes))
    if all(turn.reward is None for vote in votes for turn in vote.turns):
        return Credit(values=values)
    noise = noise_of(votes)
    left = {vote.rollout: _left(vote) for vote in votes}
    longest = max(len(vote.turns) for vote in votes)
    columns = [
        centred({key: row[min(turn, len(row) - 1)] for key, row in left.items()}, noise) for turn in range(longest)
    ]
    return Credit(
        values=values,
        turns={
            vote.rollout: tuple((turn, columns[turn][vote.rollout]) for turn in range(len(vote.turns)))
            for vote in votes
        },
    )


def at_the_end(vote: Vote) -> float:
    """What the rewards of the turns do not explain of the whole: the outcome, and a penalty of the ending."""
    return vote.reward - sum(turn.reward for turn in vote.turns if turn.reward is not None)


def noise_of(votes: Sequence[Vote]) -> float:
    """How far apart equal returns of this group may be, for they are differences of its rewards."""
    given = [turn.reward for vote in votes for turn in vote.turns if turn.reward is not None]
    return EQUAL_WITHIN * largest([*given, *(vote.reward for vote in votes)])


def _left(vote: Vote) -> list[float]:
    """What the rollout had still to get before each turn, and behind its last one."""
    left = [at_the_end(vote)]
    for turn in reversed(vote.turns):
        left.append(left[-1] if turn.reward is None else left[-1] + turn.reward)
    left[-1] = vote.reward
    return left[::-1]
