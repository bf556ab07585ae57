"""Group advantages, computed once, when a group closes.

Order: members come together by the scheduled group id and the seat, never by position; the ending rules decide who
votes; only then any statistic is computed, over the voters alone. What was delivered stays: a group with a stored
advantage is given back as it was, and members that came later get none.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from types import FunctionType

import msgspec

from rollbook.errors import RecordError
from rollbook.rewards.dispositions import DEFAULT_RULES, PRODUCER, dispositions, rules_hash
from rollbook.rewards.estimators import Estimator, estimate, mean_baseline, mean_spread
from rollbook.rewards.outcome import Outcome, outcome_of
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import EndingRules, Fate
from rollbook.trace.episode import GroupKey, by_group
from rollbook.trace.facts import ADVANTAGE, GroupAdvantages, fact
from rollbook.trace.trace import Trace

__all__ = ["Advantages", "GroupAdvantages", "advantages", "close_group"]


class Advantages(msgspec.Struct, frozen=True):
    """The advantages of several groups."""

    groups: tuple[GroupAdvantages, ...]
    """In the order in which the groups first appear."""
    late: tuple[str, ...] = ()
    """Rollouts that came after their group was delivered: no advantage."""

    @property
    def values(self) -> dict[str, float]:
        """Advantage by rollout id, of all that vote."""
        return {rollout: value for group in self.groups for rollout, value in group.values.items()}

    def annotations(self, step: int = 0) -> list[Annotation]:
        """One annotation a member, for a sink; its value is an `Advantage`, with the whole of its group."""
        return [note for group in self.groups for note in _notes(group, step)]


def _notes(group: GroupAdvantages, step: int) -> list[Annotation]:
    whole = {**msgspec.to_builtins(group), "members": list(group.members)}  # as it reads back: JSON has no tuples
    return [
        Annotation(
            producer=PRODUCER,
            name=ADVANTAGE,
            rollout=rollout,
            step=step,
            value={"advantage": group.values.get(rollout), **whole},
        )
        for rollout in group.members
    ]


def advantages(
    traces: Iterable[Trace],
    rules: EndingRules = DEFAULT_RULES,
    *,
    spread: bool = False,
    estimator: Estimator | None = None,
    scheduled: int | None = None,
    delivered: Iterable[Annotation] = (),
) -> Advantages:
    """Advantages of all closed groups among `traces`, keyed by rollout id.

    `spread`: divide by the group's sample standard deviation too. `estimator`: one of the user's own, instead of the
    built-in ones. `scheduled`: rollouts asked for per group; None: as many as were not retried. `delivered`: stored
    annotations; groups with an advantage among them are given back unchanged. Raises `RecordError` where two traces
    of one rollout disagree, a trace still runs or an estimator breaks its ids, `UsageError` where a stored advantage
    has another shape.
    """
    chosen = estimator if estimator is not None else (mean_spread if spread else mean_baseline)
    kept = _unique(traces)
    decided = dispositions(kept, rules)
    done = _delivered(delivered)
    groups: list[GroupAdvantages] = []
    late: list[str] = []
    for key, members in by_group(kept).items():
        if key in done:
            late += [trace.id for trace in members if trace.id not in done[key].members]
            groups.append(done[key])
        else:
            outcomes = [outcome_of(trace, rules, decided[trace.id]) for trace in members]
            groups.append(close_group(key, outcomes, rules, estimator=chosen, scheduled=scheduled))
    return Advantages(tuple(groups), tuple(late))


def close_group(
    key: GroupKey,
    members: Sequence[Outcome],
    rules: EndingRules = DEFAULT_RULES,
    *,
    estimator: Estimator = mean_baseline,
    scheduled: int | None = None,
) -> GroupAdvantages:
    """The advantages of one closed group; nothing is computed from members without a vote.

    `scheduled`: rollouts asked for; None: as many as were not retried. Raises `RecordError` where an estimator breaks
    its ids.
    """
    votes = {each.rollout: each.vote for each in members if each.vote is not None}
    first_tries = sum(each.disposition.fate is not Fate.RETRIED for each in members)
    return GroupAdvantages(
        group=key.group,
        seat=key.seat,
        values=estimate(estimator, votes),
        members=tuple(each.rollout for each in members),
        baseline=math.fsum(votes.values()) / len(votes) if votes else None,
        scheduled=first_tries if scheduled is None else scheduled,
        used=len(votes),
        estimator=_name(estimator),
        rules=rules_hash(rules),
    )


def _unique(traces: Iterable[Trace]) -> list[Trace]:
    found: dict[str, Trace] = {}
    for trace in traces:
        first = found.setdefault(trace.id, trace)
        if _facts(first) != _facts(trace):
            raise RecordError(f"rollout {trace.id} came twice, with different group, ending or reward")
    return list(found.values())


def _facts(trace: Trace) -> tuple[object, ...]:
    return trace.head.group, trace.head.agent.seat, trace.ending, trace.reward, trace.tail.scoring


def _delivered(annotations: Iterable[Annotation]) -> dict[GroupKey, GroupAdvantages]:
    done: dict[GroupKey, GroupAdvantages] = {}
    for annotation in annotations:
        if annotation.producer == PRODUCER and annotation.name == ADVANTAGE:
            group = fact(annotation, GroupAdvantages)
            done.setdefault(group.key, group)
    return done


def _name(estimator: Estimator) -> str:
    return estimator.__qualname__ if isinstance(estimator, FunctionType) else type(estimator).__qualname__
