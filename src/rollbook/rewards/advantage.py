"""Group advantages, computed once, when a group closes.

Order: members come together by the scheduled group id and the seat, never by position; the ending rules decide who
votes; only then any statistic is computed, over the voters alone. What was delivered stays: a group with a stored
advantage is given back as it was, and members that came later get none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from rollbook.errors import ConfigError, RecordError
from rollbook.rewards.dispositions import DEFAULT_RULES, PRODUCER, dispositions, rules_hash
from rollbook.rewards.estimators import (
    DEFAULT_ESTIMATOR,
    Credit,
    Estimator,
    EstimatorRow,
    TurnVote,
    Vote,
    estimate,
    find_estimator,
)
from rollbook.rewards.estimators.statistics import constant, mean
from rollbook.rewards.outcome import Outcome, outcome_of
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import EndingRules, Fate
from rollbook.trace.episode import GroupKey, by_group
from rollbook.trace.facts import ADVANTAGE, GroupAdvantages, closed_groups
from rollbook.trace.facts import advantages as recorded
from rollbook.trace.trace import Trace

__all__ = ["Advantages", "GroupAdvantages", "advantages", "close_group", "close_groups", "refuse_whole_batch"]


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

    def annotations(self, step: int = 0, producer: str = PRODUCER) -> list[Annotation]:
        """One annotation a member, for a sink; its value is an `Advantage`, with the whole of its group but for the
        turns of the others."""
        return [note for group in self.groups for note in _notes(group, step, producer)]


def _notes(group: GroupAdvantages, step: int, producer: str) -> list[Annotation]:
    whole = {**msgspec.to_builtins(group), "members": list(group.members)}  # as it reads back: JSON has no tuples
    return [
        Annotation(
            producer=producer,
            name=ADVANTAGE,
            rollout=rollout,
            step=step,
            value={"advantage": group.values.get(rollout), **whole, "turns": _own_turns(group, rollout)},
        )
        for rollout in group.members
    ]


def _own_turns(group: GroupAdvantages, rollout: str) -> dict[str, list[list[float]]]:
    rows = group.turns.get(rollout)
    return {} if rows is None else {rollout: [[turn, value] for turn, value in rows]}


def advantages(
    traces: Iterable[Trace],
    rules: EndingRules = DEFAULT_RULES,
    *,
    estimator: Estimator = DEFAULT_ESTIMATOR,
    scheduled: int | None = None,
    outcome_part: str | None = None,
    share_seats: bool = False,
    delivered: Iterable[Annotation] = (),
) -> Advantages:
    """Advantages of all closed groups among `traces`, keyed by rollout id.

    `estimator`: one of `ESTIMATORS` by name, or the user's own. `scheduled`: rollouts asked for per group; None: as
    many as were not retried. `outcome_part`: the part of the reward that must differ within a group for anything to be
    learned from it. `share_seats`: compare the seats of an episode with each other; their group's seat is then all
    of their names. `delivered`: stored annotations; groups with an advantage among them are given back unchanged.
    Raises `RecordError` where two traces of one rollout disagree, a trace still runs or an estimator breaks its ids,
    `UsageError` where a stored advantage has another shape or nobody knows the estimator.
    """
    row = find_estimator(estimator)
    kept = _unique(traces)
    decided = dispositions(kept, rules)
    done = _delivered(delivered)
    grouped = by_group(kept)
    if share_seats:
        grouped = _seats_together(grouped)
    late = tuple(
        trace.id for key in grouped if key in done for trace in grouped[key] if trace.id not in done[key].members
    )
    to_close = {
        key: [outcome_of(trace, rules, decided[trace.id]) for trace in members]
        for key, members in grouped.items()
        if key not in done
    }
    found = close_groups(to_close, rules, estimator=row, scheduled=scheduled, outcome_part=outcome_part)
    by_key = {**done, **{each.key: each for each in found}}
    return Advantages(tuple(by_key[key] for key in grouped), late)


def close_group(
    key: GroupKey,
    members: Sequence[Outcome],
    rules: EndingRules = DEFAULT_RULES,
    *,
    estimator: Estimator = DEFAULT_ESTIMATOR,
    scheduled: int | None = None,
    outcome_part: str | None = None,
) -> GroupAdvantages:
    """The advantages of one closed group; nothing is computed from members without a vote.

    As `close_groups`; raises `ConfigError` too for an estimator that needs the whole batch.
    """
    row = refuse_whole_batch(estimator)
    (found,) = close_groups({key: members}, rules, estimator=row, scheduled=scheduled, outcome_part=outcome_part)
    return found


def refuse_whole_batch(estimator: Estimator) -> EstimatorRow:
    """The row of an estimator that can close a group alone; raises `ConfigError` for another."""
    row = find_estimator(estimator)
    if row.whole_batch:
        raise ConfigError(
            f"'{row.name}' needs all groups of a batch at once, and here each is closed for itself: compute it over "
            "the finished run (`rollbook score RUN --estimator NAME --keep`, or `advantages`), or choose another"
        )
    return row


def close_groups(
    groups: Mapping[GroupKey, Sequence[Outcome]],
    rules: EndingRules = DEFAULT_RULES,
    *,
    estimator: Estimator = DEFAULT_ESTIMATOR,
    scheduled: int | None = None,
    outcome_part: str | None = None,
) -> list[GroupAdvantages]:
    """The advantages of the closed groups of one batch, in their order; nothing is computed from members without a
    vote.

    `scheduled`: rollouts asked for; None: as many as were not retried. `outcome_part`: a group whose voters are all
    alike in this part of their rewards leaves before anything is computed, and has advantages of 0. Raises
    `RecordError` where an estimator breaks its ids; `ConfigError` where nobody knows the estimator, the estimator is
    not defined for these rewards, or nobody in a group has the part.
    """
    row = find_estimator(estimator)
    votes = {key: [_vote(each, each.vote) for each in rows if each.vote is not None] for key, rows in groups.items()}
    flat = {key for key, rows in votes.items() if outcome_part is not None and _alike(key, rows, outcome_part)}
    signal = [key for key in groups if key not in flat]
    given = dict(zip(signal, estimate(row, [votes[key] for key in signal]), strict=True))
    nothing = {key: Credit(values={vote.rollout: 0.0 for vote in votes[key]}) for key in flat}
    return [
        GroupAdvantages(
            group=key.group,
            seat=key.seat,
            values=credit.values,
            members=tuple(each.rollout for each in groups[key]),
            baseline=mean([vote.reward for vote in votes[key]]) if votes[key] else None,
            scheduled=_first_tries(groups[key]) if scheduled is None else scheduled,
            used=len(votes[key]),
            estimator=row.name,
            rules=rules_hash(rules),
            turns=credit.turns,
            no_signal=f"all alike in '{outcome_part}'" if key in flat else None,
        )
        for key, credit in ((key, {**given, **nothing}[key]) for key in groups)
    ]


def _first_tries(members: Iterable[Outcome]) -> int:
    return sum(each.disposition.fate is not Fate.RETRIED for each in members)


def _vote(outcome: Outcome, reward: float) -> Vote:
    given = dict(outcome.turn_rewards)
    states = outcome.states or (None,) * outcome.turns
    return Vote(
        rollout=outcome.rollout,
        reward=reward,
        penalty=0.0 if outcome.reward is None else reward - outcome.reward,
        parts=outcome.parts,
        turns=tuple(TurnVote(reward=given.get(turn), state=state) for turn, state in enumerate(states)),
        sampled=outcome.sampled,
    )


def _alike(key: GroupKey, votes: Sequence[Vote], part: str) -> bool:
    """Whether the part says the same of all voters; one that lacks it is unlike the others."""
    given = [vote.parts[part] for vote in votes if part in vote.parts]
    if votes and not given:
        names = ", ".join(sorted({name for vote in votes for name in vote.parts})) or "none"
        raise ConfigError(
            f"the reward part '{part}' decides which groups have a signal, and nobody in group {key.group} has it "
            f"(parts: {names}); let the scorer give it, or name another"
        )
    return len(given) == len(votes) > 0 and constant(given)


def _seats_together(groups: Mapping[GroupKey, list[Trace]]) -> dict[GroupKey, list[Trace]]:
    seats: dict[str, list[str]] = {}
    for key in groups:
        seats.setdefault(key.group, []).append(key.seat)
    together: dict[GroupKey, list[Trace]] = {}
    for key, traces in groups.items():
        together.setdefault(GroupKey(key.group, "+".join(sorted(seats[key.group]))), []).extend(traces)
    return together


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
    return closed_groups(recorded(note for note in annotations if note.producer == PRODUCER))
