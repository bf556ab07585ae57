"""Full collections: rare while many rollouts are in flight, regular while few are, and Python's own rule afterwards."""

from __future__ import annotations

import asyncio
import gc

import pytest

from rollbook.rollout.collecting import FEW, MANY, NEVER, Collector, is_due


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
