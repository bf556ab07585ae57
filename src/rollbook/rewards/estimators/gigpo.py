"""Credit by turn from groups within the group: turns that stood before the same state are compared with each other.

The state of a turn is what it was shown since the turn before, told apart by a hash; it may be seen several times in
one rollout, and each time counts, as in the paper.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from rollbook.rewards.estimators.baselines import grpo
from rollbook.rewards.estimators.statistics import normalised
from rollbook.rewards.estimators.turn_level import at_the_end, noise_of
from rollbook.rewards.estimators.votes import Credit, Vote

__all__ = ["gigpo"]

DISCOUNT = 0.95
"""Per turn, as in the paper's experiments."""
STEP_WEIGHT = 1.0
"""Of the comparison within a state, beside that of whole rollouts."""


def gigpo(votes: Sequence[Vote], discount: float = DISCOUNT, weight: float = STEP_WEIGHT) -> Credit:
    """``A_i + w (R_it - m_z) / s_z``: the advantage of the rollout as in GRPO, plus the discounted return of turn t
    normalised among the turns of the group with the same state z (GiGPO, arXiv 2505.10978).

    What the turns' rewards do not explain counts for the last turn. A state that is met once, or not known, adds 0.
    """
    episode = grpo(votes).values
    noise = noise_of(votes)
    met = defaultdict[str, dict[tuple[str, int], float]](dict)
    for vote in votes:
        returns = _returns(vote, discount)
        for turn, each in enumerate(vote.turns):
            if each.state is not None:
                met[each.state][vote.rollout, turn] = returns[turn]
    step = dict[tuple[str, int], float]()
    for visits in met.values():
        step.update(normalised(visits, noise))
    return Credit(
        values=episode,
        turns={
            vote.rollout: tuple(
                (turn, episode[vote.rollout] + weight * step.get((vote.rollout, turn), 0.0))
                for turn in range(len(vote.turns))
            )
            for vote in votes
            if vote.turns
        },
    )


def _returns(vote: Vote, discount: float) -> list[float]:
    returns: list[float] = []
    behind = at_the_end(vote)
    for turn in reversed(vote.turns):
        behind = (turn.reward or 0.0) + behind
        returns.append(behind)
        behind *= discount
    return returns[::-1]
