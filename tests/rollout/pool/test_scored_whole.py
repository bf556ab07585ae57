"""The book of a group that is scored as a whole: it asks once, and closes with what it is told."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest
from msgspec import structs

from rollbook.errors import StoreError
from rollbook.rewards import Outcome
from rollbook.rollout import GroupPlan, GroupRules
from rollbook.rollout.pool import Actions, GroupBook, Order, Scheduler
from rollbook.rollout.pool.group_scoring import GroupScores
from rollbook.trace import Disposition, EndingRules, Fate, ScoringStatus, Task
from tests.rollout.pool.pooled import Carries, Heard, outcome

TASK = Task(id="t", prompt="p")


def whole(size: int = 2, **rules: int) -> GroupBook:
    return GroupBook(GroupPlan(id="g", task=TASK, size=size), GroupRules(**rules), EndingRules(), scored_whole=True)


def pending(order: Order) -> Outcome:
    """Ended, and nobody has scored it yet."""
    return structs.replace(
        outcome(order, reward=None),
        disposition=Disposition(Fate.DROPPED, "no reward"),
        scoring=ScoringStatus.PENDING,
        vote=None,
    )


def scored(outcomes: Sequence[Outcome], reward: float = 1.0) -> GroupScores:
    used = Disposition(Fate.USED, "final_answer: score")
    return GroupScores(
        outcomes={
            each.rollout: structs.replace(each, reward=reward + place, vote=reward + place, disposition=used)
            for place, each in enumerate(outcomes)
        }
    )


def all_ended(book: GroupBook) -> Actions:
    orders = [order for order, _ in book.begin().orders]
    actions = Actions()
    for order in orders:
        actions = book.ended(pending(order), 3)
    return actions


def test_it_asks_once_all_ended_and_closes_with_the_rewards() -> None:
    book = whole(refill=2)
    actions = all_ended(book)
    assert actions.closed is None
    assert actions.score is not None
    assert not actions.orders, "one that waits to be scored is not replaced"
    closed = book.scored(scored(actions.score)).closed
    assert closed is not None
    assert closed.used == 2
    assert {each.fate for each in closed.changed.values()} == {Fate.USED}
    assert sorted(closed.advantages[0].values.values()) == [-0.5, 0.5]
    assert book.expire() == Actions()
    assert book.abandon("too late") == Actions()


def test_what_is_told_nothing_closes_without_votes() -> None:
    book = whole()
    actions = all_ended(book)
    closed = book.scored(GroupScores()).closed
    assert actions.score is not None
    assert closed is not None
    assert (closed.used, closed.changed) == (0, {})


def test_a_group_of_which_nobody_can_vote_is_not_asked_about() -> None:
    book = whole(1)
    (order,) = [order for order, _ in book.begin().orders]
    failed = structs.replace(pending(order), scoring=ScoringStatus.FAILED)
    actions = book.ended(failed, 3)
    assert actions.score is None
    assert actions.closed is not None


def test_one_that_is_given_up_is_not_asked_about() -> None:
    book = whole(2)
    first, _ = [order for order, _ in book.begin().orders]
    book.ended(pending(first), 3)
    actions = book.abandon("stale")
    assert actions.score is None
    assert actions.closed is not None


@pytest.mark.parametrize("fails", [False, True])
def test_the_scheduler_scores_before_it_closes_and_a_failure_stops_it(fails: bool) -> None:
    seen: list[int] = []

    async def score(outcomes: Sequence[Outcome]) -> GroupScores:
        await asyncio.sleep(0)
        seen.append(len(outcomes))
        if fails:
            raise StoreError("the folder is gone")
        return scored(outcomes)

    async def go() -> Heard:
        books = iter([whole(2)])

        async def next_group() -> GroupBook | None:
            return next(books, None)

        heard = Heard()
        await Scheduler(Carries(pending), heard, concurrency=2, score=score).run(next_group)
        return heard

    if fails:
        with pytest.raises(StoreError, match="the folder is gone"):
            asyncio.run(go())
    else:
        assert [each.used for each in asyncio.run(go()).groups] == [2]
    assert seen == [2]
