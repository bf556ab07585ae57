"""Advantage estimators: from the votes of groups to an advantage for each rollout, and for its turns where they differ.

One module a family, `ESTIMATORS` names them all; formulas and sources stand with each function.
"""

from rollbook.rewards.estimators.table import (
    DEFAULT_ESTIMATOR,
    ESTIMATORS,
    Estimator,
    EstimatorRow,
    estimate,
    find_estimator,
)
from rollbook.rewards.estimators.votes import Credit, TurnVote, Vote

__all__ = [
    "DEFAULT_ESTIMATOR",
    "ESTIMATORS",
    "Credit",
    "Estimator",
    "EstimatorRow",
    "TurnVote",
    "Vote",
    "estimate",
    "find_estimator",
]
