"""The state of one running rollout, and the ways in which it stops.

The first ending sticks: once a step was stopped or failed, every later one raises the same ending, and the rollout
ends with it, whatever the agent did with the first. Own time is charged for decoding and tools, never for waiting
on a limiter.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from rollbook.envs import Environment, ToolSet
from rollbook.errors import RollbookError, StoreError
from rollbook.rollout.limiter import Limiter
from rollbook.rollout.limits import Budget
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.rollout.stopwatch import Stopwatch
from rollbook.trace import ROOT, Ending, RolloutFailure, Sampling, Sink, Trace, TurnReward

__all__ = ["RolloutState", "Stopped"]

_Result = TypeVar("_Result")


class Stopped(RollbookError):
    """The rollout has its ending; unwinds the agent. Not a fault."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(str(ending))
        self.ending = ending


@dataclass(slots=True, kw_only=True)
class RolloutState:
    """What one rollout holds while it runs."""

    env: Environment
    tools: ToolSet
    loaded: LoadedPolicy
    sampling: Sampling
    """`seed` is the rollout's seed, from which each call's is derived."""
    budget: Budget
    trace: Trace
    sink: Sink
    engine: Limiter
    watch: Stopwatch
    leaf: int = ROOT
    """The last node of the conversation."""
    turn_rewards: list[TurnReward] = field(default_factory=list[TurnReward])
    stopped: Ending | None = None

    def stop(self, ending: Ending) -> NoReturn:
        """End the rollout here."""
        self.stopped = self.stopped or ending
        raise Stopped(self.stopped)

    @contextmanager
    def step(self) -> Generator[None]:
        """One step of the agent: raises the ending again where there is one, and keeps a failure as the ending."""
        if self.stopped is not None:
            raise Stopped(self.stopped)
        try:
            yield
        except RolloutFailure as failure:
            self.stopped = self.stopped or failure.ending
            raise

    def reward(self, value: float | None) -> None:
        """Bind a step reward to the turn that caused it."""
        if value is not None:
            self.turn_rewards.append(TurnReward(int(self.trace.policy_nodes[-1]), value))

    def store(self) -> None:
        """Make the trace so far durable. A failing disk never changes the rollout: it is noted, and tried again
        later."""
        try:
            self.sink.turn(self.trace)
        except StoreError as error:
            self.trace.note("store", str(error))

    async def within_deadline(self, work: Awaitable[_Result]) -> _Result:
        """Await `work`, but no longer than the rollout's own time lasts; its time is charged."""
        left = self.budget.seconds_left
        began = self.watch.elapsed
        timeout = asyncio.timeout(None if left == float("inf") else max(left, 0.0))
        try:
            async with timeout:
                return await work
        except TimeoutError:
            if not timeout.expired():
                raise
            self.stop(self.budget.out_of_time(self.watch.elapsed - began))
        finally:
            self.budget.seconds += self.watch.elapsed - began
