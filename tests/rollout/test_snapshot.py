"""Snapshots: they add up in any order, a worker that is gone keeps its counts, and what a roster says is so."""

from __future__ import annotations

import asyncio

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.rollout import Phase, ResourceLimit, Resources, Snapshot, add_snapshots
from rollbook.rollout.snapshot import add_limiters, gone
from rollbook.trace import Reason
from tests.rollout.made import Engine, Talk, attempt, says
from tests.rollout.test_resources import Slow


def snapshot(draws: st.DataObject, name: str) -> Snapshot:
    """A worker's snapshot, as a run gives it."""
    few = st.integers(0, 5)
    made = Snapshot(
        phases=draws.draw(st.dictionaries(st.sampled_from(Phase), st.integers(1, 5))),
        started=draws.draw(few),
        endings=draws.draw(st.dictionaries(st.sampled_from(Reason), st.integers(1, 5))),
        tokens=draws.draw(few),
        oldest=draws.draw(st.none() | st.integers(1, 9).map(float)),
        limiters=tuple(each.stats() for each in (Resources().engine,)),
    )
    for value in draws.draw(st.lists(st.integers(0, 64).map(lambda n: n / 16), max_size=5)):
        made.lag.add(value)
        made.calls.sampled_tokens.add(value)
    return made


@given(st.data())
def test_they_add_up_in_any_order_and_nothing_is_lost(draws: st.DataObject) -> None:
    all_of = [snapshot(draws, str(number)) for number in range(3)]
    together = add_snapshots(all_of)
    assert together == add_snapshots(reversed(all_of)) == add_snapshots([add_snapshots(all_of[:2]), all_of[2]])
    assert together.in_flight == sum(each.in_flight for each in all_of)
    assert together.finished == sum(each.finished for each in all_of)
    assert together.tokens == sum(each.tokens for each in all_of)
    assert together.lag.count == sum(each.lag.count for each in all_of)


@given(st.data())
def test_they_cross_processes(draws: st.DataObject) -> None:
    made = snapshot(draws, "a")
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(made), type=Snapshot) == made


def test_a_worker_that_is_gone_keeps_its_counts_and_has_nothing_in_flight() -> None:
    first = Snapshot(phases={Phase.TOOLS: 2}, started=5, endings={Reason.FINAL_ANSWER: 3}, oldest=1.0)
    together = add_snapshots((gone(first), Snapshot(phases={Phase.SETUP: 1}, started=1, oldest=9.0)))
    assert (together.started, together.finished, together.in_flight, together.oldest) == (6, 3, 1, 9.0)
    assert together.phases == {Phase.SETUP: 1}


def test_limits_of_one_resource_add_up_over_the_workers() -> None:
    two, three = Resources({"engine": ResourceLimit(limit=2)}), Resources({"engine": ResourceLimit(limit=3)})
    rows = add_limiters((*two.stats(), *three.stats()))
    assert [(row.name, row.limit) for row in rows][:2] == [("engine", 5), ("sandbox", None)]
    assert add_limiters((*two.stats(), *Resources().stats()))[0].limit is None
    assert [each.in_use for each in gone(two.snapshot()).limiters] == [0] * 4


def test_a_roster_follows_a_rollout_through_its_phases() -> None:
    async def scenario() -> tuple[list[Snapshot], Snapshot]:
        resources, seen = Resources(), list[Snapshot]()
        async with resources, asyncio.TaskGroup() as group:

            async def wait_for_it() -> object:
                await asyncio.sleep(0.05)
                return says("five")

            running = group.create_task(attempt(Slow(0.05), Engine([wait_for_it]), resources=resources))
            while not running.done():
                seen.append(resources.snapshot())
                await asyncio.sleep(0.005)
        return seen, resources.snapshot()

    seen, last = asyncio.run(scenario())
    phases = [phase for each in seen for phase in each.phases]
    main = (Phase.SETUP, Phase.SAMPLING, Phase.SCORING)
    assert tuple(dict.fromkeys(phase for phase in phases if phase in main)) == main
    assert all(each.in_flight <= 1 for each in seen)
    assert any(each.oldest is not None for each in seen)
    assert (last.in_flight, last.oldest, last.started, last.endings) == (0, None, 1, {Reason.FINAL_ANSWER: 1})
    assert (last.turns, last.tokens) == (1, last.calls.sampled_tokens.total)
    assert (last.rewarded, last.rewards, last.calls.seconds.count) == (1, 1.0, 1)
    assert last.tokens > 0
    assert last.lag.count > 0


def test_an_attempt_that_fails_is_counted_too() -> None:
    async def scenario() -> Snapshot:
        resources = Resources()
        await attempt(Talk(), Engine([ZeroDivisionError("x")]), resources=resources)
        return resources.snapshot()

    last = asyncio.run(scenario())
    assert last.endings == {Reason.INTERNAL: 1}
    assert (last.calls.failed, last.rewarded, last.turns) == (1, 0, 0)


def test_nothing_was_rewarded_yet() -> None:
    assert (Snapshot().rewarded, Snapshot().rewards) == (0, 0.0)
    assert Snapshot().lag.quantile(0.99) is None
    with pytest.raises(AttributeError):
        Snapshot().started = 1  # type: ignore[misc]
