"""The estimators by name, and the one way to run them: each is held to the rollouts that it was given.

Missing, unknown or non-finite advantages raise `RecordError`; nothing is matched by position.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType

from rollbook.errors import ConfigError, RecordError
from rollbook.rewards.estimators.baselines import dr_grpo, grpo, maxrl, opo, pass_at_k, rewards_of, rloo
from rollbook.rewards.estimators.gigpo import gigpo
from rollbook.rewards.estimators.turn_level import turn_level
from rollbook.rewards.estimators.votes import Credit, GroupEstimator, RewardFunction, Vote
from rollbook.rewards.estimators.whole_batch import gdpo, reinforce_pp, reinforce_pp_baseline

__all__ = ["DEFAULT_ESTIMATOR", "ESTIMATORS", "Estimator", "EstimatorRow", "estimate", "find_estimator"]

DEFAULT_ESTIMATOR = "dr_grpo"


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatorRow:
    """One estimator."""

    name: str
    about: str
    """What it is, in few words."""
    source: str
    """Where it is from."""
    estimate: Callable[[Sequence[Sequence[Vote]]], Sequence[Credit]]
    """From the voters of each group to the credit of each."""
    whole_batch: bool = False
    """True where a group's advantages depend on the other groups of its batch, so that none can be closed alone."""


Estimator = str | EstimatorRow | RewardFunction
"""A name among `ESTIMATORS`, a row, or a function of the user's own from rewards to advantages by rollout id."""


def find_estimator(estimator: Estimator) -> EstimatorRow:
    """The row of an estimator; raises `ConfigError` for a name that nobody has."""
    if isinstance(estimator, EstimatorRow):
        return estimator
    if not isinstance(estimator, str):
        return _own(estimator)
    if estimator not in ESTIMATORS:
        raise ConfigError(f"there is no estimator '{estimator}'; there are {', '.join(ESTIMATORS)}")
    return ESTIMATORS[estimator]


def estimate(estimator: EstimatorRow, groups: Sequence[Sequence[Vote]]) -> list[Credit]:
    """The credit of each group, checked. Raises `RecordError`."""
    found = list(estimator.estimate(groups))
    if len(found) != len(groups):
        raise RecordError(f"the advantage estimator gave {len(found)} groups for {len(groups)}")
    return [_held(credit, votes) for credit, votes in zip(found, groups, strict=True)]


def _held(credit: Credit, votes: Sequence[Vote]) -> Credit:
    given, turns = credit.values, {vote.rollout: len(vote.turns) for vote in votes}
    missing = sorted(turns.keys() - given.keys())
    unknown = sorted((given.keys() | credit.turns.keys()) - turns.keys())
    if missing or unknown:
        raise RecordError(f"the advantage estimator left out {missing} and made up {unknown}; it must keep the ids")
    by_turn = {rollout: [value for _, value in rows] for rollout, rows in credit.turns.items()}
    bad = sorted(
        rollout for rollout in turns if not all(map(math.isfinite, (given[rollout], *by_turn.get(rollout, ()))))
    )
    if bad:
        raise RecordError(f"the advantage estimator gave no finite number for {bad}")
    stray = sorted(
        rollout for rollout, rows in credit.turns.items() if any(not 0 <= turn < turns[rollout] for turn, _ in rows)
    )
    if stray:
        raise RecordError(f"the advantage estimator made up turns of {stray}")
    return Credit(
        values={rollout: float(given[rollout]) for rollout in turns},
        turns={rollout: credit.turns[rollout] for rollout in turns if rollout in credit.turns},
    )


def _own(function: RewardFunction) -> EstimatorRow:
    name = function.__qualname__ if isinstance(function, FunctionType) else type(function).__qualname__

    def group(votes: Sequence[Vote]) -> Credit:
        given: Mapping[str, float] = function(rewards_of(votes))
        return Credit(values=dict(given))

    return EstimatorRow(name=name, about="a function of the user's own", source="", estimate=_each(group))


def _each(group: GroupEstimator) -> Callable[[Sequence[Sequence[Vote]]], list[Credit]]:
    """The groups one by one."""

    def groups(votes: Sequence[Sequence[Vote]]) -> list[Credit]:
        return [group(each) for each in votes]

    return groups


_ROWS = (
    EstimatorRow(
        name="dr_grpo",
        about="reward minus the group's mean",
        source="arXiv 2503.20783",
        estimate=_each(dr_grpo),
    ),
    EstimatorRow(
        name="grpo",
        about="divided by the group's spread as well",
        source="arXiv 2402.03300",
        estimate=_each(grpo),
    ),
    EstimatorRow(
        name="rloo",
        about="reward minus the mean of the others",
        source="arXiv 2402.14740",
        estimate=_each(rloo),
    ),
    EstimatorRow(
        name="opo",
        about="reward minus the mean weighted by length",
        source="arXiv 2505.23585",
        estimate=_each(opo),
    ),
    EstimatorRow(
        name="reinforce_pp",
        about="normalised over the batch",
        source="arXiv 2501.03262",
        estimate=reinforce_pp,
        whole_batch=True,
    ),
    EstimatorRow(
        name="reinforce_pp_baseline",
        about="minus the group's mean, divided by the batch's spread",
        source="arXiv 2501.03262",
        estimate=reinforce_pp_baseline,
        whole_batch=True,
    ),
    EstimatorRow(
        name="maxrl",
        about="minus the group's mean, divided by it",
        source="arXiv 2602.02710",
        estimate=_each(maxrl),
    ),
    EstimatorRow(
        name="turn_level",
        about="each turn's return against the group's",
        source="verl issue 7244",
        estimate=_each(turn_level),
    ),
    EstimatorRow(
        name="gdpo",
        about="each part of the reward normalised alone",
        source="arXiv 2601.05242",
        estimate=gdpo,
        whole_batch=True,
    ),
    EstimatorRow(
        name="gigpo",
        about="grpo, and turns of the same state compared",
        source="arXiv 2505.10978",
        estimate=_each(gigpo),
    ),
    EstimatorRow(
        name="pass_at_k",
        about="the best member gets the gap to the second",
        source="arXiv 2503.19595",
        estimate=_each(pass_at_k),
    ),
)

ESTIMATORS: Mapping[str, EstimatorRow] = {row.name: row for row in _ROWS}
"""All that a run can name."""
