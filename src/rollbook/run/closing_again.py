"""Closed groups, closed once more: what becomes of a run's attempts, and what they are worth, under other rewards,
other ending rules or another estimator.

Rules. Only groups that the record holds closed take part, with the members that they had then; traces that no run made
(an import) are taken as they are, all of them. What was no matter of an ending stays: rollouts that came late, and
those that were too stale, keep their disposition. Of a member's attempts the first that these rules would not run again
stands, and the later ones would never have been: they are dropped. A retry of which no further attempt is stored is
dropped, as in a finished run. Traces are read one at a time and none is kept.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from rollbook.rewards import (
    DEFAULT_ESTIMATOR,
    Estimator,
    GroupAdvantages,
    Outcome,
    close_groups,
    decide,
    outcome_of,
)
from rollbook.rollout.pool import LATE
from rollbook.run.standing import standing
from rollbook.store import RunReader
from rollbook.trace import Disposition, EndingRules, Fate, GroupKey, Reason, Retry, Score, Summary, facts
from rollbook.trace.rescored import rescored

__all__ = ["Judging", "Verdict", "close_again"]

NEVER_RUN = "an earlier attempt stands under these rules"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judging:
    """By what a run is judged."""

    rules: EndingRules
    counted: Mapping[Reason, float] = field(default_factory=dict[Reason, float])
    """Endings that count as a reward of so much, whatever was scored and also where nothing was sampled. No run does
    this; it shows what would follow."""
    estimator: Estimator = DEFAULT_ESTIMATOR
    outcome_part: str | None = None
    min_used: int = 1
    """A group with fewer votes is dropped as a whole."""


class Verdict(msgspec.Struct, frozen=True, kw_only=True):
    """What became of the attempts."""

    outcomes: dict[str, Outcome]
    """By rollout, of all that took part."""
    groups: tuple[GroupAdvantages, ...]

    @property
    def dispositions(self) -> dict[str, Disposition]:
        """By rollout."""
        return {rollout: each.disposition for rollout, each in self.outcomes.items()}

    @property
    def values(self) -> dict[str, float | None]:
        """Advantage by rollout; None: no vote."""
        return {rollout: group.values.get(rollout) for group in self.groups for rollout in group.members}


def close_again(source: RunReader, judging: Judging, rewards: Mapping[str, facts.Reward]) -> Verdict:
    """Close the run's groups again. `rewards`: in the place of the traces' own. Raises as `close_groups`."""
    notes = source.annotations()
    closed = facts.closed_groups(facts.advantages(notes))
    everything = not closed and standing(source) is None
    fixed = _fixed(notes)
    group_of = {rollout: key for key, group in closed.items() for rollout in group.members}
    rows = [row for row in source.summaries() if everything or row.rollout in group_of]
    stands = _standing(rows, judging.rules)
    members: dict[GroupKey, list[Outcome]] = {}
    for row in rows:
        trace = rescored(source.get(row.rollout), rewards.get(row.rollout))
        decided = fixed.get(row.rollout) or stands[row.rollout] or decide(trace, judging.rules)
        outcome = _counted(outcome_of(trace, judging.rules, decided), judging, fixed=row.rollout in fixed)
        key = group_of.get(row.rollout) or GroupKey(row.group, row.seat)
        members.setdefault(key, []).append(outcome)
    worth = {
        key: _enough(group, closed[key].scheduled if key in closed else len(group), judging.min_used)
        for key, group in members.items()
    }
    found = close_groups(worth, judging.rules, estimator=judging.estimator, outcome_part=judging.outcome_part)
    groups = tuple(
        msgspec.structs.replace(group, scheduled=closed[group.key].scheduled) if group.key in closed else group
        for group in found
    )
    return Verdict(
        outcomes={each.rollout: each for group in worth.values() for each in group},
        groups=groups,
    )


def _fixed(notes: Sequence[facts.Annotation]) -> dict[str, Disposition]:
    """Dispositions that no ending rule gave."""
    stale = {rollout for rollout, each in facts.stalenesses(notes).items() if each.dropped}
    return {
        rollout: each
        for rollout, each in facts.dispositions(notes).items()
        if rollout in stale or each.rule.startswith(LATE)
    }


def _standing(rows: Iterable[Summary], rules: EndingRules) -> dict[str, Disposition | None]:
    """The disposition of attempts that do not stand; None for those whose own rule decides."""
    attempts = defaultdict[tuple[str, str, int], list[Summary]](list)
    for row in rows:
        attempts[row.group, row.seat, row.member].append(row)
    found: dict[str, Disposition | None] = {}
    for tries in attempts.values():
        tries.sort(key=lambda row: row.attempt)
        stood = False
        for place, row in enumerate(tries):
            earlier = [each.reason for each in tries[:place]]
            if stood:
                found[row.rollout] = Disposition(Fate.DROPPED, NEVER_RUN)
            elif place + 1 < len(tries) and _again(row.reason, earlier, rules):
                found[row.rollout] = Disposition(Fate.RETRIED, rules.describe(row.reason) if row.reason else "")
            else:
                found[row.rollout], stood = None, True
    return found


def _again(reason: Reason | None, earlier: Sequence[Reason | None], rules: EndingRules) -> bool:
    rule = Score() if reason is None else rules.rule(reason)
    return isinstance(rule, Retry) and earlier.count(reason) < rule.times


def _counted(outcome: Outcome, judging: Judging, *, fixed: bool) -> Outcome:
    reward = judging.counted.get(outcome.reason)
    if reward is None or fixed or outcome.disposition.rule == NEVER_RUN:
        return outcome
    decided = Disposition(Fate.USED, f"{outcome.reason}: reward({reward:g})")
    return msgspec.structs.replace(outcome, disposition=decided, reward=reward, vote=reward, parts={}, turn_rewards=())


def _enough(members: list[Outcome], size: int, least: int) -> list[Outcome]:
    used = sum(each.vote is not None for each in members)
    if not 0 < used < least:
        return members
    dropped = Disposition(Fate.DROPPED, f"group: {used} of {size} used, fewer than {least}")
    return [
        each if each.vote is None else msgspec.structs.replace(each, disposition=dropped, vote=None) for each in members
    ]
