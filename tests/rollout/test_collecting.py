"""Full collections: rare while many rollouts are in flight, regular while few are, and Python's own rule afterwards."""

from __future__ import annotations

import asyncio
import gc

import pytest

from rollbook.rollout.collecting import FEW, MANY, NEVER, SECONDS, Collector, is_due
from tests.rollout.skipping import run_skipping


@pytest.mark.parametrize(
    ("in_flight", "ended", "due"),
    [
        (10_000, MANY, False),
        (10_000, 40_000, True),
        (1_000, MANY, True),
        (1_000, MANY - 1, False),
        (FEW, FEW, False),
        (FEW - 1, FEW, True),
        (0, FEW - 1, False),
    ],
)
def test_the_rule(in_flight: int, ended: int, due: bool) -> None:
    assert is_due(in_flight, ended) is due


def test_python_collects_by_its_own_rule_before_and_after() -> None:
    before = gc.get_threshold()

    async def main() -> tuple[int, int]:
        async with Collector(lambda: (0, 0)):
            inner = gc.get_threshold()[2]
            async with Collector(lambda: (0, 0)):
                pass
            return inner, gc.get_threshold()[2]

    assert asyncio.run(main()) == (NEVER, NEVER)
    assert gc.get_threshold() == before
    assert gc.get_freeze_count() == 0


def test_what_fails_inside_gives_python_its_rule_back_too() -> None:
    before = gc.get_threshold()

    async def main() -> None:
        async with Collector(lambda: (0, 0)):
            raise ValueError("inside")

    for _ in range(2):
        with pytest.raises(ValueError, match="inside"):
            asyncio.run(main())
        assert (gc.get_threshold(), gc.get_freeze_count()) == (before, 0)


def test_it_collects_at_the_look_behind_which_it_is_due_and_then_begins_to_count_anew() -> None:
    ended = 0

    async def main() -> list[int]:
        nonlocal ended
        seen = list[int]()
        async with Collector(lambda: (0, ended)):
            await asyncio.sleep(SECONDS / 2)
            for number in (FEW - 1, FEW, 2 * FEW - 1, 2 * FEW):
                ended, before = number, full_collections()
                await asyncio.sleep(SECONDS)
                seen.append(full_collections() - before)
        return seen

    assert run_skipping(main()) == [0, 1, 0, 1]


def full_collections() -> int:
    return gc.get_stats()[2]["collections"]
