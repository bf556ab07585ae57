"""One rollout: one agent's attempt at one task, from the first observation to its ending, recorded.

Order: begin in the sink, set the environment up, let the agent act, fix the ending (first cause wins), score what
the rules may use, clean up (always, also on cancel), seal. A failing scorer or clean-up never changes the ending.
"""

from __future__ import annotations

import asyncio
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec

from rollbook.envs import Environment, ForeignError, ToolSet, call_foreign
from rollbook.envs.convert import plain_json
from rollbook.errors import RollbookError, StoreError, boundary
from rollbook.rewards import score_trace
from rollbook.rollout.limiter import Limiter
from rollbook.rollout.limits import Budget, Limits
from rollbook.rollout.loaded import LoadedPolicy
from rollbook.rollout.session import Agent, Session, chat
from rollbook.rollout.state import RolloutState, Stopped
from rollbook.rollout.stopwatch import Part, Stopwatch
from rollbook.trace import (
    Drop,
    Ending,
    EndingRules,
    FinalState,
    MemorySink,
    Message,
    Reason,
    Retry,
    RolloutFailure,
    Sampling,
    Sink,
    Task,
    Trace,
    TraceHead,
)

__all__ = ["RolloutSettings", "head_for", "run_rollout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How rollouts run: the same for all rollouts of a run."""

    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    """`seed` is the run's seed."""
    rules: EndingRules = field(default_factory=EndingRules)
    agent: Agent = chat
    cancelled_as: Reason = Reason.CANCELLED
    """The ending of a rollout whose task is cancelled. A run that can be resumed gives `interrupted`, for then the
    attempt is made again."""


async def run_rollout(
    env: Environment,
    head: TraceHead,
    loaded: LoadedPolicy,
    settings: RolloutSettings,
    *,
    seed: int,
    sink: Sink | None = None,
    engine: Limiter | None = None,
) -> Trace:
    """Run one attempt and return its sealed trace. Raises only `StoreError` (the record cannot be kept) and
    cancellation."""
    trace = Trace(head)
    state = RolloutState(
        env=env,
        tools=ToolSet.of(env),
        loaded=loaded,
        sampling=msgspec.structs.replace(settings.sampling, seed=seed),
        budget=Budget(settings.limits),
        trace=trace,
        sink=MemorySink() if sink is None else sink,
        engine=Limiter("engine", None) if engine is None else engine,
        watch=Stopwatch(),
    )
    state.sink.begin(trace)
    try:
        trace.end(await _attempt(state, settings.agent))
    except asyncio.CancelledError:
        trace.end(Ending(settings.cancelled_as))
        raise
    finally:
        await _finish(state, settings.rules)
    return trace


async def _attempt(state: RolloutState, agent: Agent) -> Ending:
    """Set up and let the agent act. What stopped the session first is the ending, whatever the agent made of it."""
    limits = state.budget.limits
    wall_cap = Ending(Reason.HARNESS, f"wall cap of {limits.wall} s reached")
    try:
        async with asyncio.timeout(limits.wall) as cap:
            with state.watch.span(Part.SANDBOX):
                observation = await _set_up(state)
            where = "agent loop" if agent is chat else "agent"
            reason = Reason.INTERNAL if agent is chat else Reason.HARNESS
            with boundary(where, lambda text: RolloutFailure(reason, text)):
                await agent(Session(state, observation))
        # an agent may have swallowed the cancellation
        ending = wall_cap if cap.expired() else Ending(Reason.FINAL_ANSWER)
    except Stopped as stopped:
        ending = stopped.ending
    except RolloutFailure as failure:
        ending = failure.ending
    except TimeoutError:
        ending = wall_cap
    except RollbookError as error:
        state.trace.note("rollout", "".join(traceback.format_exception(error)))
        ending = Ending(Reason.INTERNAL, str(error))
    return state.stopped or ending


async def _set_up(state: RolloutState) -> Sequence[Message]:
    try:
        return await call_foreign(state.env.setup(state.trace.task), state.budget.limits.setup_timeout)
    except ForeignError as error:
        raise RolloutFailure(Reason.ENV_SETUP, f"setup: {error}") from error


async def _finish(state: RolloutState, rules: EndingRules) -> None:
    """Score, clean up and seal. Runs whatever happened; the ending is fixed before."""
    trace, limits = state.trace, state.budget.limits
    ending = trace.ending
    if ending is None:
        ending = Ending(Reason.INTERRUPTED, "the process is stopping")
        trace.end(ending)
    if not isinstance(rules.rule(ending.reason), Drop | Retry):
        with state.watch.span(Part.SCORING):
            await _keep_final_state(state)
            await score_trace(state.env, trace, turn_rewards=state.turn_rewards, seconds=limits.score_timeout)
    with state.watch.span(Part.CLEANUP):
        await _clean_up(state)
    trace.update(times=state.watch.split(), finished=time.time())
    try:
        state.sink.seal(trace)
    except StoreError as error:
        # The record in memory is whole; the disk may have been full for a moment only.
        trace.note("store", str(error))
        state.sink.seal(trace)


async def _clean_up(state: RolloutState) -> None:
    try:
        await call_foreign(state.env.cleanup(), state.budget.limits.cleanup_timeout)
    except RollbookError as error:
        state.trace.note("cleanup", str(error))


async def _keep_final_state(state: RolloutState) -> None:
    try:
        final = await call_foreign(state.env.final_state(), state.budget.limits.score_timeout)
        with boundary("final state", ForeignError):
            state.trace.update(final_state=_plain(final))
    except RollbookError as error:
        state.trace.note("final_state", str(error))


def _plain(final: FinalState | None) -> FinalState | None:
    """A final state as it is read back; what cannot be stored is refused here, for it must not cost the record."""
    if final is None:
        return None
    fields = {"text": final.text, "data": plain_json(final.data, "data"), "files": final.files}
    return msgspec.convert(fields, FinalState)


def head_for(
    env: Environment,
    task: Task,
    loaded: LoadedPolicy,
    *,
    group: str,
    member: int = 0,
    attempt: int = 0,
    run: str = "",
    config: dict[str, Any] | None = None,
) -> TraceHead:
    """The head of a new rollout of `task` in `env`."""
    return TraceHead(
        rollout=f"{group}-{member}" + (f".{attempt}" if attempt else ""),
        group=group,
        task=task,
        policies=(loaded.record(),),
        run=run,
        member=member,
        attempt=attempt,
        environment=env.name or type(env).__name__.lower(),
        tools=ToolSet.of(env).specs,
        config=config or {},
        started=time.time(),
    )
