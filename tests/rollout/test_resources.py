"""What rollouts share: names, defaults, and that each step takes its slot and charges the wait to the limiter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from rollbook.envs import tool
from rollbook.envs.offloop import cores
from rollbook.errors import ConfigError
from rollbook.rollout import Limiter, Limits, ResourceLimit, Resources
from rollbook.trace import Message, Reason, Task, TimeSplit, Trace
from tests.rollout.made import Engine, Talk, attempt, call, says, why

ONE = ResourceLimit(limit=1)


def test_scoring_alone_is_limited_by_itself() -> None:
    resources = Resources()
    limits = {each.name: each.limit for each in resources.stats()}
    assert limits == {"engine": None, "sandbox": None, "scoring": cores(), "judge": None}


def test_a_tool_has_one_limiter_and_they_are_told_by_name() -> None:
    resources = Resources({"tool:search": ResourceLimit(limit=2)})
    assert resources.tool("search") is resources.tool("search")
    assert resources.tool("add").limit is None
    assert [(each.name, each.limit) for each in resources.stats()][4:] == [("tool:add", None), ("tool:search", 2)]


@pytest.mark.parametrize("name", ["engines", "tool:", "tool", ""])
def test_a_name_that_no_resource_has_is_refused(name: str) -> None:
    with pytest.raises(ConfigError, match="no resource is called"):
        Resources({name: ONE})


@pytest.mark.parametrize(
    "given",
    [
        {"limit": 0},
        {"per_second": 0.0},
        {"per_second": float("nan")},
        {"per_second": float("inf")},
        {"burst": 0},
        {"burst": 2},
        {"per_second": 2.5, "burst": 3},
        {"per_second": 0.5, "burst": 2},
    ],
)
def test_a_limit_that_cannot_be_kept_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigError):
        ResourceLimit(**given)


def test_a_rate_is_kept_with_all_that_share_its_folder(tmp_path: Path) -> None:
    async def scenario() -> float:
        made = [Resources({"tool:a b": ResourceLimit(per_second=5)}, rates=tmp_path) for _ in range(2)]
        began = time.monotonic()
        async with made[0], made[1]:
            for resources in made:
                async with resources.tool("a b").slot():
                    pass
        return time.monotonic() - began

    assert asyncio.run(scenario()) >= 0.2
    assert [file.name for file in tmp_path.iterdir()] == ["tool%3aa%20b.rate"]


class Slow(Talk):
    """Takes as long as told for each step."""

    def __init__(self, seconds: float = 0.0) -> None:
        super().__init__()
        self.seconds = seconds

    async def setup(self, task: Task) -> Sequence[Message]:
        await asyncio.sleep(self.seconds)
        return await super().setup(task)

    async def score(self, trace: Trace) -> float:
        await asyncio.sleep(self.seconds)
        return 1.0

    @tool
    async def add(self, a: int, b: int) -> int:
        """Adds.

        Args:
            a: One.
            b: The other.
        """
        await asyncio.sleep(0.05)
        return a + b

    @tool
    async def other(self, a: int, b: int) -> int:
        """Adds, too.

        Args:
            a: One.
            b: The other.
        """
        await asyncio.sleep(0.2)
        return a + b


async def behind(limiter: Limiter, seconds: float, **more: Any) -> Trace:
    """A rollout while somebody else holds the limiter's only slot for so long."""
    async with asyncio.TaskGroup() as group:

        async def hold() -> None:
            async with limiter.slot():
                await asyncio.sleep(seconds)

        group.create_task(hold())
        await asyncio.sleep(0)
        running = group.create_task(attempt(**more))
    return running.result()


def times(trace: Trace) -> TimeSplit:
    assert trace.tail.times is not None
    return trace.tail.times


@pytest.mark.parametrize("name", ["sandbox", "scoring", "tool:add"])
def test_waiting_for_a_slot_is_the_limiters_and_no_step_runs_out_of_time_by_it(name: str) -> None:
    async def scenario() -> tuple[Trace, Resources]:
        resources = Resources({name: ONE})
        found = {"sandbox": resources.sandbox, "scoring": resources.scoring, "tool:add": resources.tool("add")}
        limits = Limits(deadline=0.15, setup_timeout=0.15, score_timeout=0.15)
        engine = Engine([says(call()), says("five")])
        return await behind(
            found[name], 0.4, env=Slow(0.01), engine=engine, limits=limits, resources=resources
        ), resources

    trace, resources = asyncio.run(scenario())
    assert why(trace) is Reason.FINAL_ANSWER
    assert trace.reward == 1.0
    split = times(trace)
    assert split.limiter >= 0.3
    assert split.tool < 0.2
    (stats,) = [each for each in resources.stats() if each.name == name]
    assert (stats.entered, stats.peak, stats.in_use, stats.waiting) == (2, 1, 0, 0)
    assert stats.waited == pytest.approx(split.limiter, abs=0.05)


def test_while_another_call_of_the_reply_runs_no_time_is_the_limiters() -> None:
    async def scenario() -> Trace:
        resources = Resources({"tool:add": ONE})
        engine = Engine([says(call() + call("other")), says("five")])
        return await behind(resources.tool("add"), 0.1, env=Slow(), engine=engine, resources=resources)

    split = times(asyncio.run(scenario()))
    assert split.limiter < 0.05
    assert split.tool >= 0.19
    assert split.overlapped == pytest.approx(0.05, abs=0.04)


def test_calls_of_one_reply_share_the_slot_of_their_tool() -> None:
    async def scenario() -> Trace:
        resources = Resources({"tool:add": ONE})
        return await attempt(Slow(), Engine([says(call() + call() + call()), says("five")]), resources=resources)

    split = times(asyncio.run(scenario()))
    assert split.tool >= 0.14
    assert split.limiter < 0.05
    assert split.overlapped < 0.03


def test_the_deadline_cuts_a_tool_after_its_wait() -> None:
    async def scenario() -> Trace:
        resources = Resources({"tool:other": ONE})
        engine = Engine([says(call("other")), says("five")])
        limits = Limits(deadline=0.1)
        return await behind(resources.tool("other"), 0.3, env=Slow(), engine=engine, limits=limits, resources=resources)

    trace = asyncio.run(scenario())
    assert why(trace) is Reason.DEADLINE
    assert 0.08 <= times(trace).tool < 0.19
