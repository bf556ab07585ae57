"""What an estimator gets and gives: one row for each rollout that votes, and back its credit, all by rollout id.

Rules: a rollout is one row however many branches or samples it has; what was not given is absent, never 0; an empty
group gives nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

__all__ = ["Credit", "GroupEstimator", "RewardFunction", "TurnVote", "Vote"]


class TurnVote(msgspec.Struct, frozen=True, kw_only=True):
    """One turn of a rollout that votes."""

    reward: float | None = None
    """What was given for this turn alone; None: nothing was."""
    state: str | None = None
    """Turns with equal states stood before the same situation; None: not known, so it is like no other."""


class Vote(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout that votes."""

    rollout: str
    reward: float
    """Of the whole rollout, the penalty of its ending included."""
    penalty: float = 0.0
    """What the ending rules added to the reward that was scored; it is part of `reward`."""
    parts: dict[str, float] = {}
    """What the scored reward is made of, by name; a part that is missing was not given."""
    turns: tuple[TurnVote, ...] = ()
    """In order. Their rewards are part of `reward`; what they do not explain of it came at the end."""
    sampled: int = 0
    """Tokens that the policy sampled; 0 also where nobody counted."""


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """The advantages of one group."""

    values: dict[str, float]
    """Of each rollout."""
    turns: dict[str, tuple[tuple[int, float], ...]] = {}
    """(turn, advantage) of a rollout whose turns differ; one that is missing has its rollout's in every turn."""


GroupEstimator = Callable[[Sequence[Vote]], Credit]
"""Computes the credit of one group from its voters alone."""

RewardFunction = Callable[[Mapping[str, float]], Mapping[str, float]]
"""A user's own estimator: gets the voters' rewards by rollout id and gives an advantage for exactly these ids."""
