"""Rewards: scoring one trace, ending rules applied, and group advantages."""

from rollbook.rewards.advantage import (
    Advantages,
    GroupAdvantages,
    advantages,
    close_group,
    close_groups,
    refuse_whole_batch,
)
from rollbook.rewards.dispositions import annotate, decide, dispositions, rules_hash, voting_reward
from rollbook.rewards.estimators import (
    DEFAULT_ESTIMATOR,
    ESTIMATORS,
    Credit,
    Estimator,
    EstimatorRow,
    TurnVote,
    Vote,
    find_estimator,
)
from rollbook.rewards.outcome import Outcome, outcome_of
from rollbook.rewards.scoring import score_trace

__all__ = [
    "DEFAULT_ESTIMATOR",
    "ESTIMATORS",
    "Advantages",
    "Credit",
    "Estimator",
    "EstimatorRow",
    "GroupAdvantages",
    "Outcome",
    "TurnVote",
    "Vote",
    "advantages",
    "annotate",
    "close_group",
    "close_groups",
    "decide",
    "dispositions",
    "find_estimator",
    "outcome_of",
    "refuse_whole_batch",
    "rules_hash",
    "score_trace",
    "voting_reward",
]
