"""Reports about kills by the clock that looked like success, and about infrastructure that fails a whole run."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from rollbook.envs import Environment, tool
from rollbook.rewards import advantages
from rollbook.rollout import Limits, RolloutSettings, group
from rollbook.rollout.breaker import Breaker, InfrastructureDown
from rollbook.trace import (
    Drop,
    EndingKind,
    EndingRules,
    FinalState,
    Message,
    Reason,
    ScoringStatus,
    Task,
    Trace,
)
from tests.cases.case import Script, calls, report, run_one, says

HOUR = 0.2
"""Seconds that stand for the report's hour."""


class Driver(Environment):
    """Its command runs through a pipe: whatever kills it, the exit code is 0."""

    def __init__(self) -> None:
        self.done = 0

    @tool(timeout=None)
    async def run(self) -> str:
        """Runs the driver."""
        try:
            for _ in range(1000):
                self.done += 1
                await asyncio.sleep(HOUR / 10)
        except asyncio.CancelledError:
            pass  # killed; tee ends as if nothing were
        return "exit code 0"

    async def final_state(self) -> FinalState:
        return FinalState(text=f"{self.done} steps done")

    async def score(self, trace: Trace) -> float:
        assert trace.tail.final_state is not None
        return 0.5 if trace.tail.final_state.text[0] != "0" else 0.0


@report("D01")
def test_a_kill_by_the_clock_is_no_normal_end_and_is_scored_on_what_is_there(given: dict[str, Any]) -> None:
    start, kill, seen = given["events"]
    assert (start["t"], kill["t"], seen["exit_code_seen"]) == (0, 3600, 0)
    script = Script([calls("run", "{}"), says("done")])
    trace = run_one(Driver, script, limits=Limits(max_generation=None, deadline=HOUR))
    assert trace.ending is not None
    assert (trace.ending.kind, trace.ending.reason) == (EndingKind.TRUNCATED, Reason.DEADLINE)
    assert (trace.reward, len(script.prompts)) == (0.5, 1)
    # The cap on the whole, which says nothing of the policy, is an error and has no reward.
    capped = run_one(Driver, Script([calls("run", "{}")]), limits=Limits(deadline=None, wall=HOUR, max_generation=None))
    assert capped.ending is not None
    assert (capped.ending.kind, capped.ending.reason, capped.reward) == (EndingKind.ERROR, Reason.HARNESS, None)


class Verified(Environment):
    """Its verifier ends as told."""

    result = ""

    async def score(self, trace: Trace) -> float | None:
        match self.result:
            case "timeout":
                await asyncio.sleep(60)
            case "crash":
                raise RuntimeError("segmentation fault")
            case _:
                return None  # no reward file
        return 0.0


@report("D01")
def test_a_verifier_that_gives_nothing_leaves_no_reward_and_the_ending_alone(given: dict[str, Any]) -> None:
    found: dict[str, tuple[float | None, ScoringStatus]] = {}
    for verifier in given["verifier"]:
        Verified.result = verifier["result"]
        trace = run_one(Verified, Script([says("done")]), limits=Limits(max_generation=None, score_timeout=0.05))
        assert trace.ending is not None
        assert trace.ending.reason is Reason.FINAL_ANSWER
        found[verifier["result"]] = trace.reward, trace.tail.scoring.status
    assert found == {
        "timeout": (None, ScoringStatus.FAILED),
        "crash": (None, ScoringStatus.FAILED),
        "reward file missing": (None, ScoringStatus.PENDING),
    }


class Sessions(Environment):
    """Opens a session, which fails as often as the report says."""

    left: list[dict[str, Any]]

    async def setup(self, task: Task) -> Sequence[Message]:
        mine = self.left.pop()
        if "error" in mine:
            raise ConnectionError(mine["error"])
        return await super().setup(task)

    async def score(self, trace: Trace) -> float:
        return 1.0


@report("D02")
def test_lost_sessions_have_no_vote_and_one_survivor_gives_no_signal(given: dict[str, Any]) -> None:
    Sessions.left = list(given["group"])
    rules = EndingRules({Reason.ENV_SETUP: Drop()})
    settings = RolloutSettings(rules=rules)
    task = Task(id="t", prompt="go")
    traces = asyncio.run(group(Sessions, task, Script([says("x")]).loaded(), len(given["group"]), settings=settings))
    lost = [trace for trace in traces if trace.ending and trace.ending.reason is Reason.ENV_SETUP]
    assert [trace.reward for trace in lost] == [None] * 3
    (closed,) = advantages(traces, rules, scheduled=len(given["group"])).groups
    assert (closed.used, closed.scheduled, list(closed.values.values())) == (1, 4, [0.0])


@report("D02")
def test_the_breaker_stops_what_the_report_ran_for_twenty_steps(given: dict[str, Any]) -> None:
    errors = sum("error" in each for each in given["group"])
    breaker = Breaker()
    ended = 0
    while not breaker.open:
        reason = Reason.ENV_SETUP if "error" in given["group"][ended % len(given["group"])] else Reason.FINAL_ANSWER
        breaker.ended(reason)
        ended += 1
    assert ended == 40  # and not 1,280
    assert breaker.errors == {Reason.ENV_SETUP: 40 * errors // len(given["group"])}
    with pytest.raises(InfrastructureDown, match="30 env_setup"):
        breaker.check()
