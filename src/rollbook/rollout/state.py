"""The state of one running rollout, and the ways in which it stops.

The first ending sticks: once a step was stopped or failed, every later one raises the same ending, and the rollout
ends with it, whatever the agent did with the first. What breaks inside a step is a fault of ours (`internal`, with
its traceback in the record); what breaks in an agent outside of one is not. Own time is charged for decoding and
tools, never for waiting on a limiter.
"""

from __future__ import annotations

import traceback
from collections.abc import Awaitable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn, TypeVar

from rollbook.envs import Environment, ToolSet
from rollbook.errors import RollbookError, StoreError, boundary
from rollbook.rollout.limits import Budget, RequestRetries
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.rollout.own_time import OwnTime
from rollbook.rollout.resources import Resources
from rollbook.rollout.stopwatch import Stopwatch
from rollbook.trace import (
    ROOT,
    ContextPolicy,
    Ending,
    Message,
    Reason,
    RolloutFailure,
    Sampling,
    Sink,
    Trace,
    TurnReward,
)

__all__ = ["RolloutState", "Stopped"]

_Result = TypeVar("_Result")


class Stopped(RollbookError):
    """The rollout has its ending; unwinds the agent. Not a fault."""

    def __init__(self, ending: Ending) -> None:
        super().__init__(str(ending))
        self.ending = ending


class _Internal(RollbookError):
    """Something that is no error of ours escaped a step."""


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
    resources: Resources
    """What it shares with the other rollouts."""
    watch: Stopwatch
    retries: RequestRetries
    """What is left of the member's budget of requests that are made again."""
    context: ContextPolicy = ContextPolicy.KEEP
    """How earlier turns stand in later prompts."""
    leaf: int = ROOT
    """The last node of the conversation."""
    unanswered: Message | None = None
    """The last reply, until it was acted on."""
    turn_rewards: list[TurnReward] = field(default_factory=list[TurnReward])
    """Step rewards so far."""
    stopped: Ending | None = None
    """What stopped the rollout first; None while it runs."""
    busy: bool = False
    """True while a step runs."""
    own_time: OwnTime | None = None
    """Runs while a request or a tool does; None: no time is charged."""

    def stop(self, ending: Ending) -> NoReturn:
        """End the rollout here."""
        self.stopped = self.stopped or ending
        raise Stopped(self.stopped)

    def close(self, ending: Ending) -> Ending:
        """Take no further step. Returns the rollout's ending: what stopped it first, else `ending`."""
        self.stopped = self.stopped or ending
        return self.stopped

    @contextmanager
    def step(self) -> Generator[None]:
        """One step of the agent: raises the ending again where there is one, and keeps a failure as the ending."""
        if self.stopped is not None:
            raise Stopped(self.stopped)
        try:
            if self.busy:
                raise RolloutFailure(Reason.HARNESS, "a step was asked for while another one runs; take one at a time")
            self.busy = True
            try:
                with boundary("rollout", _Internal):
                    yield
            finally:
                self.busy = False
        except Stopped:
            raise
        except RolloutFailure as failure:
            self.stopped = self.stopped or failure.ending
            raise
        except RollbookError as error:
            self.stop(self.internal(error))

    def internal(self, error: RollbookError) -> Ending:
        """The ending for a fault of ours; its traceback goes into the record."""
        self.trace.note("rollout", "".join(traceback.format_exception(error)))
        return Ending(Reason.INTERNAL, str(error))

    def reward(self, value: float | None) -> None:
        """Bind a step reward to the turn that caused it: the reply that is being answered, the last node so far."""
        if value is not None:
            self.turn_rewards.append(TurnReward(self.leaf, value))

    def store(self) -> None:
        """Make the trace so far durable. A failing disk never changes the rollout: it is noted, and tried again
        later."""
        try:
            self.sink.turn(self.trace)
        except StoreError as error:
            self.trace.note("store", str(error))

    async def within_deadline(self, work: Awaitable[_Result]) -> _Result:
        """Await `work`, but no longer than the rollout's own time lasts; its time is charged. What comes after the
        deadline does not count, be it a result or a failure."""
        own = OwnTime(self.budget, self.watch)
        try:
            async with own:
                self.own_time = own
                result = await work
        except (TimeoutError, RollbookError):
            if not own.over:
                raise
            self.stop(self.budget.out_of_time())
        finally:
            self.own_time = None
        if own.over:
            self.stop(self.budget.out_of_time())
        return result
