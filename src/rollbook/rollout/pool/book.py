"""The book of one group: which attempts run, which ended, and when the group closes. No clock, no I/O.

Rules. Each member has one attempt at a time; an attempt that is retried, or whose worker was lost, is followed by the
next one; losses have a budget of their own, for a task that kills its worker would do so for ever. A member that is
dropped may be replaced, up to the cap. The group closes once: when every member is done, when enough have a vote, when
its deadline passed, or when it is abandoned as a whole; whoever runs then is cancelled, and what comes in later is
kept, counted and not used. Closing decides what the group is worth before anything is computed from it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import msgspec

from rollbook.rewards import DEFAULT_ESTIMATOR, Estimator, GroupAdvantages, Outcome, close_group, refuse_whole_batch
from rollbook.rollout.backoff import jittered
from rollbook.rollout.pool.orders import GroupPlan, GroupRules, Order
from rollbook.trace import Disposition, EndingRules, Fate, Reason
from rollbook.trace.episode import GroupKey
from rollbook.trace.facts import flat_groups

__all__ = ["GROUP_CLOSED", "LATE", "MAX_LOST", "Actions", "Closed", "GroupBook"]

LATE = "late: "
"""Begins the rules by which rollouts are dropped that came when nobody waited for them any more."""
GROUP_CLOSED = f"{LATE}its group was closed"
"""The one for rollouts of a group that was closed."""
MAX_LOST = 3
"""How often the worker of one member may be lost before the member is given up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Closed:
    """A group that closed."""

    plan: GroupPlan
    outcomes: tuple[Outcome, ...]
    """Every attempt that ended before, in order, with what became of it now that the group is closed."""
    advantages: tuple[GroupAdvantages, ...]
    """For each seat."""
    refilled: int
    """Members that took the place of dropped ones."""
    unrecorded: int
    """Members that were given up without any record, for their workers died at once."""
    cancelled: tuple[str, ...]
    """Rollouts that still ran, or waited to run."""
    changed: dict[str, Disposition]
    """Dispositions that the close changed, by rollout."""

    @property
    def used(self) -> int:
        """Members with a vote."""
        return sum(each.used for each in self.advantages)

    @property
    def zero_variance(self) -> bool:
        """True where there are votes, and all of a seat are equal: nothing is learned from it."""
        return bool(flat_groups(self.advantages))


@dataclass(slots=True)
class Actions:
    """What follows from something that happened."""

    orders: list[tuple[Order, float]] = field(default_factory=list[tuple[Order, float]])
    """To run, each after so many seconds."""
    cancel: list[str] = field(default_factory=list[str])
    """Rollouts to cancel."""
    late: Outcome | None = None
    """What came too late, with what became of it."""
    closed: Closed | None = None


@dataclass(slots=True)
class _Member:
    number: int
    retries_left: int
    running: Order | None = None
    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    earlier: list[Reason] = field(default_factory=list[Reason])
    """How its attempts ended, those without a record included."""
    attempts: int = 0
    lost: int = 0
    done: bool = False


class GroupBook:
    """Keeps one group together. Whoever holds it carries out the actions that it answers with."""

    def __init__(
        self,
        plan: GroupPlan,
        rules: GroupRules,
        endings: EndingRules,
        *,
        request_retries: int = 0,
        estimator: Estimator = DEFAULT_ESTIMATOR,
        outcome_part: str | None = None,
        earlier: Sequence[Outcome] = (),
        chance: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """`earlier`: attempts that a run which goes on holds already. `chance`: gives numbers in [0, 1), to spread
        waits. `outcome_part`: as in `rollbook.rewards.close_groups`."""
        self.plan, self.closed = plan, False
        self._rules, self._endings, self._chance = rules, endings, chance
        self._estimator, self._outcome_part = refuse_whole_batch(estimator), outcome_part
        self._retries = request_retries
        self._given_up: str | None = None
        self._members = {number: _Member(number, request_retries) for number in range(plan.size)}
        for outcome in sorted(earlier, key=lambda each: (each.member, each.attempt)):
            member = self._members.setdefault(outcome.member, _Member(outcome.member, request_retries))
            self._take(member, outcome)

    def begin(self) -> Actions:
        """The first orders; closes at once where all is done already."""
        actions = Actions()
        for member in list(self._members.values()):
            if member.done:
                self._refill(member, actions)
        for member in self._members.values():
            if not member.done and member.running is None:
                actions.orders.append((self._order(member), 0.0))
        return self._settled(actions)

    def ended(self, outcome: Outcome, retries_left: int) -> Actions:
        """An attempt ended. `retries_left`: what is left of its member's budget of request retries."""
        member = self._members.get(outcome.member)
        running = None if member is None else member.running
        if self.closed or member is None or running is None or running.attempt != outcome.attempt:
            why = GROUP_CLOSED if self.closed else f"{LATE}another attempt had taken its place"
            return Actions(late=_drop(outcome, self._given_up or why))
        actions = Actions()
        member.running, member.retries_left = None, retries_left
        self._take(member, self._bounded(member, outcome))
        if member.done:
            self._refill(member, actions)
        else:
            actions.orders.append((self._order(member), jittered(len(member.outcomes) - 1, self._chance())))
        return self._settled(actions)

    def lost(self, order: Order) -> Actions:
        """The worker of an order died and left no record of it: the same attempt runs again."""
        member = self._member_of(order)
        actions = Actions()
        if member is None:
            return actions
        member.running = None
        member.lost += 1
        if member.lost > MAX_LOST:
            member.done = True
            self._refill(member, actions, dropped=True)
        else:
            actions.orders.append((self._order(member), jittered(member.lost - 1, self._chance())))
        return self._settled(actions)

    def overdue(self, order: Order) -> Actions:
        """Nothing was heard of an order for too long: it is given up, and the next attempt takes its place."""
        member = self._member_of(order)
        if member is None:
            return Actions()
        member.earlier.append(Reason.INTERRUPTED)
        member.attempts = order.attempt + 1
        actions = self.lost(order)
        actions.cancel.insert(0, order.rollout)
        return actions

    def expire(self) -> Actions:
        """The group's deadline passed."""
        return Actions() if self.closed else self._close(Actions())

    def abandon(self, rule: str) -> Actions:
        """Give the whole group up; `rule` says why, for the record."""
        if self.closed:
            return Actions()
        self._given_up = rule
        return self._close(Actions())

    def without(self, closed: Closed, rules: Mapping[str, str]) -> Closed:
        """What the closed group is worth without the votes of some members, each by its rule. For a group that nobody
        has used yet."""
        return self._worth(
            closed,
            [_without_vote(each, rules[each.rollout]) if each.rollout in rules else each for each in closed.outcomes],
        )

    def joined(self, closed: Closed, late: Outcome) -> Closed:
        """A group that was given up, with a member that ended only now."""
        return self._worth(replace(closed, outcomes=(*closed.outcomes, late)), (*closed.outcomes, late))

    @property
    def least(self) -> int:
        """The fewest members with a vote for which the group is used."""
        return self._rules.min_used

    @property
    def votes(self) -> Sequence[Outcome]:
        """The attempts that ended and vote, so far."""
        return [each for each in self._outcomes() if each.vote is not None]

    @property
    def running(self) -> Sequence[Order]:
        """The orders that were given and did not end."""
        return [each.running for each in self._members.values() if each.running is not None]

    def wants(self, order: Order) -> bool:
        """False for an order that waited until nobody needs it any more."""
        return self._member_of(order) is not None

    def _member_of(self, order: Order) -> _Member | None:
        member = self._members.get(order.member)
        if self.closed or member is None or member.running is None or member.running.attempt != order.attempt:
            return None
        return member

    def _order(self, member: _Member) -> Order:
        member.running = Order(
            group=self.plan.id,
            task=self.plan.task,
            member=member.number,
            attempt=member.attempts,
            round=self.plan.round,
            earlier=tuple(member.earlier),
            retries_left=member.retries_left,
        )
        return member.running

    def _bounded(self, member: _Member, outcome: Outcome) -> Outcome:
        """The outcome, dropped where this member has cost its worker too often."""
        if outcome.reason is not Reason.INTERRUPTED:
            return outcome
        member.lost += 1
        if member.lost <= MAX_LOST or outcome.disposition.fate is not Fate.RETRIED:
            return outcome
        return _drop(outcome, f"interrupted: lost {member.lost} times")

    def _take(self, member: _Member, outcome: Outcome) -> None:
        member.outcomes.append(outcome)
        member.earlier.append(outcome.reason)
        member.attempts = outcome.attempt + 1
        member.done = outcome.disposition.fate is not Fate.RETRIED

    def _refill(self, member: _Member, actions: Actions, *, dropped: bool = False) -> None:
        """Put a new member in the place of one that was dropped, while the cap allows it."""
        last = member.outcomes[-1].disposition.fate if member.outcomes else None
        if not (dropped or last is Fate.DROPPED):
            return
        number = max(self._members) + 1
        lost = sum(self._is_dropped(each) for each in self._members.values())
        if number - self.plan.size < min(self._rules.refill, lost):
            self._members[number] = _Member(number, self._retries)
            actions.orders.append((self._order(self._members[number]), 0.0))

    def _is_dropped(self, member: _Member) -> bool:
        if not member.done:
            return False
        return not member.outcomes or member.outcomes[-1].disposition.fate in (Fate.DROPPED, Fate.RETRIED)

    def _settled(self, actions: Actions) -> Actions:
        """Close where nothing is left to wait for."""
        members = self._members.values()
        voters = sum(each.vote is not None for each in self._outcomes())
        enough = self._rules.enough is not None and voters >= self._rules.enough
        return self._close(actions) if not self.closed and (enough or all(each.done for each in members)) else actions

    def _outcomes(self) -> Iterable[Outcome]:
        return (outcome for member in self._members.values() for outcome in member.outcomes)

    def _close(self, actions: Actions) -> Actions:
        self.closed = True
        running = [order.rollout for order in self.running]
        actions.orders.clear()
        actions.cancel += running
        actions.closed = self._closed(running)
        return actions

    def _closed(self, running: Sequence[str]) -> Closed:
        before, rule = tuple(self._outcomes()), self._given_up
        found = Closed(
            plan=self.plan,
            outcomes=before,
            advantages=(),
            refilled=max(self._members) + 1 - self.plan.size,
            unrecorded=sum(each.done and not each.outcomes for each in self._members.values()),
            cancelled=tuple(running),
            changed={},
        )
        return self._worth(found, before if rule is None else [_without_vote(each, rule) for each in before])

    def _worth(self, closed: Closed, after: Sequence[Outcome]) -> Closed:
        """The group with these attempts: too few votes are none, and only then anything is computed."""
        used = sum(each.vote is not None for each in after)
        if 0 < used < self._rules.min_used:
            rule = f"group: {used} of {self.plan.size} used, fewer than {self._rules.min_used}"
            after = [_without_vote(each, rule) for each in after]
        seats: dict[GroupKey, list[Outcome]] = {}
        for outcome in after:
            seats.setdefault(outcome.key, []).append(outcome)
        before = {each.rollout: each.disposition for each in closed.outcomes}
        changed = {each.rollout: each.disposition for each in after if before[each.rollout] != each.disposition}
        return replace(
            closed,
            outcomes=tuple(after),
            advantages=tuple(
                close_group(
                    key,
                    rows,
                    self._endings,
                    estimator=self._estimator,
                    scheduled=self.plan.size,
                    outcome_part=self._outcome_part,
                )
                for key, rows in seats.items()
            ),
            changed={**closed.changed, **changed},
        )


def _without_vote(outcome: Outcome, rule: str) -> Outcome:
    return outcome if outcome.vote is None else _drop(outcome, rule)


def _drop(outcome: Outcome, rule: str) -> Outcome:
    return msgspec.structs.replace(outcome, disposition=Disposition(Fate.DROPPED, rule), vote=None)
