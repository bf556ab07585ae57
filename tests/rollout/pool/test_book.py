"""The book of a group: one attempt a member at a time, budgets that end, one close, nothing used that came too late."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import structs

from rollbook.errors import ConfigError
from rollbook.rollout import GroupRules
from rollbook.rollout.pool import Actions, Closed, GroupBook, Order
from rollbook.rollout.pool.book import MAX_LOST
from rollbook.trace import Fate, Reason
from tests.rollout.pool.pooled import book, outcome

LOST = Reason.SANDBOX_LOST


def first(actions: Actions) -> list[Order]:
    return [order for order, _ in actions.orders]


def test_a_group_closes_behind_its_last_member_and_computes_its_advantages_once() -> None:
    group = book(2)
    one, two = first(group.begin())
    assert [each.rollout for each in (one, two)] == ["g-0", "g-1"]
    assert group.ended(outcome(one, reward=1.0), 3).closed is None
    closed = group.ended(outcome(two, reward=0.0), 3).closed
    assert closed is not None
    assert [each.values for each in closed.advantages] == [{"g-0": 0.5, "g-1": -0.5}]
    assert (closed.used, closed.zero_variance, closed.refilled, closed.changed) == (2, False, 0, {})
    assert group.ended(outcome(two, reward=0.0), 3).closed is None


def test_a_retried_attempt_is_followed_by_the_next_which_knows_how_the_others_ended() -> None:
    group = book(1)
    (order,) = first(group.begin())
    actions = group.ended(outcome(order, LOST), 2)
    ((again, wait),) = actions.orders
    assert (again.rollout, again.earlier, again.retries_left) == ("g-0.1", (LOST,), 2)
    assert wait > 0
    (third,) = first(group.ended(outcome(again, Reason.ENGINE_TIMEOUT), 1))
    assert third.earlier == (LOST, Reason.ENGINE_TIMEOUT)
    closed = group.ended(outcome(third), 1).closed
    assert closed is not None
    assert [each.disposition.fate for each in closed.outcomes] == [Fate.RETRIED, Fate.RETRIED, Fate.USED]


def test_what_another_attempt_replaced_comes_late_and_is_not_used() -> None:
    group = book(1)
    (order,) = first(group.begin())
    actions = group.overdue(order)
    assert actions.cancel == ["g-0"]
    (again,) = first(actions)
    assert again.earlier == (Reason.INTERRUPTED,)
    late = group.ended(outcome(order), 3).late
    assert late is not None
    assert (late.disposition.fate, late.vote) == (Fate.DROPPED, None)
    assert "another attempt" in late.disposition.rule
    closed = group.ended(outcome(again, reward=0.0), 3).closed
    assert closed is not None
    assert [each.rollout for each in closed.outcomes] == ["g-0.1"]


def test_a_worker_that_dies_without_a_record_has_its_order_run_again_but_not_for_ever() -> None:
    group = book(1)
    (order,) = first(group.begin())
    for _ in range(MAX_LOST):
        ((again, wait),) = group.lost(order).orders
        assert (again, wait > 0) == (order, True)
    closed = group.lost(order).closed
    assert closed is not None
    assert (closed.unrecorded, closed.used, closed.outcomes) == (1, 0, ())


def test_a_member_that_costs_its_worker_each_time_is_dropped_in_the_end() -> None:
    group = book(1)
    (order,) = first(group.begin())
    for _ in range(MAX_LOST):
        (order,) = first(group.ended(outcome(order, Reason.INTERRUPTED), 3))
    closed = group.ended(outcome(order, Reason.INTERRUPTED), 3).closed
    assert closed is not None
    assert closed.outcomes[-1].disposition.fate is Fate.DROPPED
    assert "lost" in closed.outcomes[-1].disposition.rule


def test_losses_of_an_earlier_life_are_not_held_against_a_member() -> None:
    plain = book(1)
    (order,) = first(plain.begin())
    rows = tuple(outcome(structs.replace(order, attempt=n), Reason.INTERRUPTED) for n in range(MAX_LOST + 2))
    (again,) = first(book(1, earlier=rows).begin())
    assert again.attempt == MAX_LOST + 2


def test_dropped_members_are_replaced_up_to_the_cap() -> None:
    group = book(2, refill=1)
    one, two = first(group.begin())
    (new,) = first(group.ended(outcome(one, Reason.TEMPLATE_REFUSED), 3))
    assert new.rollout == "g-2"
    assert first(group.ended(outcome(new, Reason.TEMPLATE_REFUSED), 3)) == []
    closed = group.ended(outcome(two), 3).closed
    assert closed is not None
    assert (closed.refilled, closed.used) == (1, 1)


def test_a_group_with_too_few_votes_is_dropped_as_a_whole() -> None:
    group = book(2, min_used=2)
    one, two = first(group.begin())
    group.ended(outcome(one), 3)
    closed = group.ended(outcome(two, Reason.TEMPLATE_REFUSED), 3).closed
    assert closed is not None
    assert closed.used == 0
    assert "fewer than 2" in closed.changed["g-0"].rule
    assert closed.advantages[0].values == {}


def test_enough_votes_close_the_group_and_cancel_the_others() -> None:
    group = book(3, enough=2)
    one, two, _ = first(group.begin())
    group.ended(outcome(one), 3)
    actions = group.ended(outcome(two), 3)
    assert actions.cancel == ["g-2"]
    assert actions.closed is not None
    assert actions.closed.used == 2


def test_a_group_that_had_enough_before_starts_nobody() -> None:
    one, two, _ = first(book(3).begin())
    actions = book(3, enough=2, earlier=(outcome(one), outcome(two))).begin()
    assert actions.closed is not None
    assert (actions.orders, actions.closed.used) == ([], 2)


def test_a_deadline_closes_with_what_is_there() -> None:
    group = book(2)
    one, two = first(group.begin())
    group.ended(outcome(one), 3)
    actions = group.expire()
    assert actions.closed is not None
    assert (actions.cancel, actions.closed.used, actions.closed.cancelled) == (["g-1"], 1, ("g-1",))
    late = group.ended(outcome(two), 3).late
    assert late is not None
    assert "closed" in late.disposition.rule


def test_a_group_that_is_abandoned_has_no_votes_and_wants_nothing_more() -> None:
    group = book(2)
    one, two = first(group.begin())
    group.ended(outcome(one), 3)
    actions = group.abandon("stale: 4 behind, at most 2")
    assert actions.closed is not None
    assert actions.closed.used == 0
    assert actions.closed.changed["g-0"].rule == "stale: 4 behind, at most 2"
    assert not group.wants(two)
    assert group.abandon("again").closed is None


def test_who_ends_behind_a_group_that_was_given_up_joins_it_by_its_rule() -> None:
    group = book(2)
    one, two = first(group.begin())
    actions = group.abandon("too stale")
    assert actions.cancel == [one.rollout, two.rollout]
    assert actions.closed is not None
    assert (actions.closed.outcomes, actions.closed.advantages) == ((), ())
    late = group.ended(outcome(one, Reason.CANCELLED), 3).late
    assert late is not None
    assert late.disposition.rule == "too stale"
    closed = group.joined(actions.closed, late)
    assert [(each.members, each.used, each.scheduled) for each in closed.advantages] == [(("g-0",), 0, 2)]


def test_a_closed_group_can_lose_members_before_anybody_used_it() -> None:
    group = book(4, min_used=2)
    rewards = (1.0, 0.0, 0.0, 1.0)
    for order, reward in zip(first(group.begin()), rewards, strict=True):
        closed = group.ended(outcome(order, reward=reward), 3).closed
    assert closed is not None
    three = group.without(closed, {"g-0": "too stale"})
    assert [each.rollout for each in three.outcomes] == [each.rollout for each in closed.outcomes]
    assert three.changed == {"g-0": three.outcomes[0].disposition}
    assert (three.outcomes[0].disposition.rule, three.outcomes[0].vote) == ("too stale", None)
    assert three.advantages[0].values == pytest.approx({"g-1": -1 / 3, "g-2": -1 / 3, "g-3": 2 / 3})
    assert (three.advantages[0].scheduled, three.used) == (4, 3)
    one = group.without(closed, dict.fromkeys(("g-0", "g-1", "g-2"), "too stale"))
    assert one.used == 0
    assert one.changed["g-3"].rule == "group: 1 of 4 used, fewer than 2"
    assert set(one.changed) == {"g-0", "g-1", "g-2", "g-3"}
    assert group.without(closed, {}) == closed


def test_a_group_that_the_record_holds_whole_closes_at_once() -> None:
    plain = book(2)
    rows = tuple(outcome(order, reward=float(order.member)) for order in first(plain.begin()))
    actions = book(2, earlier=rows).begin()
    assert actions.orders == []
    assert actions.closed is not None
    assert actions.closed.used == 2


@pytest.mark.parametrize(
    "bad", [{"enough": 0}, {"deadline": 0.0}, {"min_used": 0}, {"refill": -1}, {"resample": -1}], ids=str
)
def test_rules_that_make_no_sense_are_refused(bad: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=next(iter(bad))):
        GroupRules(**bad)  # type: ignore[arg-type]


EVENTS = st.sampled_from(["fine", "retry", "drop", "interrupted", "lost", "overdue", "late", "expire", "abandon"])


@settings(max_examples=200, deadline=None)
@given(events=st.lists(st.tuples(EVENTS, st.integers(0, 5)), max_size=60), size=st.integers(1, 4), data=st.data())
def test_whatever_happens_a_group_closes_once_with_each_rollout_at_most_once(
    events: list[tuple[str, int]], size: int, data: st.DataObject
) -> None:
    refill = data.draw(st.integers(0, 2))
    enough = data.draw(st.none() | st.integers(1, 4))
    group = book(size, refill=refill, enough=enough)
    waiting: list[Order] = []
    gone: list[Order] = []
    closes: list[Closed] = []

    def take(actions: Actions) -> None:
        waiting.extend(first(actions))
        if actions.closed is not None:
            closes.append(actions.closed)
            gone.extend(waiting)
            waiting.clear()

    take(group.begin())
    asked = {order.rollout for order in waiting}
    for what, which in events:
        step(group, what, which, waiting, gone, take)
        fresh = {order.rollout for order in waiting}
        assert len(fresh) == len(waiting), "one order a rollout"
        assert Counter(order.member for order in waiting).total() == len({order.member for order in waiting})
        asked |= fresh
    while waiting:
        take(group.ended(outcome(waiting.pop(0)), 3))
    assert len(closes) == 1
    (closed,) = closes
    ids = [each.rollout for each in closed.outcomes]
    assert len(set(ids)) == len(ids)
    assert set(ids) <= asked
    assert closed.refilled <= refill
    assert all(each.used <= size + refill for each in closed.advantages)


def step(group: GroupBook, what: str, which: int, waiting: list[Order], gone: list[Order], take: object) -> None:
    assert callable(take)
    if what == "expire":
        return take(group.expire())
    if what == "abandon":
        return take(group.abandon("given up"))
    if what == "late":
        if gone:
            actions = group.ended(outcome(gone[which % len(gone)]), 3)
            assert actions.late is not None
            assert actions.orders == []
        return None
    if not waiting:
        return None
    order = waiting.pop(which % len(waiting))
    gone.append(order)
    reasons = {"fine": Reason.FINAL_ANSWER, "retry": LOST, "drop": Reason.TEMPLATE_REFUSED}
    match what:
        case "lost":
            gone.pop()
            return take(group.lost(order))
        case "overdue":
            return take(group.overdue(order))
        case "interrupted":
            return take(group.ended(outcome(order, Reason.INTERRUPTED), 3))
        case _:
            return take(group.ended(outcome(order, reasons[what]), 3))
