"""Rewards: scoring one trace, ending rules applied, and group advantages."""

from rollbook.rewards.advantage import Advantages, GroupAdvantages, advantages, close_group
from rollbook.rewards.dispositions import annotate, decide, dispositions, rules_hash, voting_reward
from rollbook.rewards.estimators import Estimator, mean_baseline, mean_spread
from rollbook.rewards.outcome import Outcome, outcome_of
from rollbook.rewards.scoring import score_trace

__all__ = [
    "Advantages",
    "Estimator",
    "GroupAdvantages",
    "Outcome",
    "advantages",
    "annotate",
    "close_group",
    "decide",
    "dispositions",
    "mean_baseline",
    "mean_spread",
    "outcome_of",
    "rules_hash",
    "score_trace",
    "voting_reward",
]
