"""The time split: with latencies that are scripted, the report finds each of them again, to within 5 %."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from typing import ClassVar

import pytest

from rollbook.envs import tool
from rollbook.rollout import Limits, ResourceLimit, Resources
from rollbook.run import report
from rollbook.trace import MemorySink, Message, Task, Trace
from tests.rollout.made import Engine, Talk, attempt, call, says

ROLLOUTS = 24


class Scripted(Talk):
    """Takes as long for each step as a script says, and keeps count of it."""

    spent: ClassVar[Counter[str]] = Counter()

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    async def take(self, part: str, least: float, most: float) -> None:
        seconds = self.rng.uniform(least, most)
        Scripted.spent[part] += seconds
        await asyncio.sleep(seconds)

    async def setup(self, task: Task) -> Sequence[Message]:
        await self.take("sandbox", 0.3, 0.5)
        return await super().setup(task)

    async def score(self, trace: Trace) -> float:
        await self.take("scoring", 0.3, 0.5)
        return 1.0

    async def cleanup(self) -> None:
        await self.take("cleanup", 0.2, 0.3)

    @tool
    async def add(self, a: int, b: int) -> int:
        """Adds.

        Args:
            a: One.
            b: The other.
        """
        await self.take("tool", 0.3, 0.5)
        return a + b


async def one(number: int, resources: Resources, sink: MemorySink) -> None:
    env = Scripted(random.Random(number))

    async def reply() -> object:
        await env.take("engine", 0.3, 0.5)
        return says(call()) if len(engine.requests) < 2 else says("five")

    engine = Engine([reply])
    await attempt(env, engine, limits=Limits(), resources=resources, sink=sink, name=f"r{number}")


def test_each_latency_is_found_again_and_little_is_left() -> None:
    Scripted.spent.clear()
    sink = MemorySink()

    async def scenario() -> Resources:
        resources = Resources({"scoring": ResourceLimit(), "sandbox": ResourceLimit(limit=8)})
        async with resources, asyncio.TaskGroup() as group:
            for number in range(ROLLOUTS):
                group.create_task(one(number, resources, sink))
        return resources

    resources = asyncio.run(scenario())
    found = {row.part: row for row in report(sink).time}
    assert {part: found[part].seconds for part in Scripted.spent} == pytest.approx(dict(Scripted.spent), rel=0.05)
    assert found["limiter"].seconds == pytest.approx(sum(each.waited for each in resources.stats()), rel=0.05)
    # three rounds of eight: the second waits for one set-up, the third for two, of 0.4 s in the mean
    assert found["limiter"].seconds == pytest.approx(8 * 0.4 + 8 * 0.8, rel=0.2)
    other = found["other"].share
    assert other is not None
    assert other < 0.05
    wall = found["wall"].seconds
    assert wall is not None
    assert sum(
        row.seconds or 0.0 for part, row in found.items() if part != "wall" and "_" not in part
    ) == pytest.approx(wall)


def test_a_wait_that_is_scripted_is_found_again() -> None:
    """The engine's only slot: the n-th rollout waits for n replies of one length."""
    sink = MemorySink()

    async def scenario() -> None:
        resources = Resources({"engine": ResourceLimit(limit=1)})

        async def reply() -> object:
            await asyncio.sleep(0.15)
            return says("five")

        async with asyncio.TaskGroup() as group:
            for number in range(6):
                group.create_task(attempt(Talk(), Engine([reply]), resources=resources, sink=sink, name=f"r{number}"))

    asyncio.run(scenario())
    found = {row.part: row.seconds for row in report(sink).time}
    assert found["limiter"] == pytest.approx(0.15 * sum(range(6)), rel=0.05)
    assert found["engine"] == pytest.approx(0.15 * 6, rel=0.05)
