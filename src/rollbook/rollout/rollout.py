"""One rollout: one agent's attempt at one task, from the first observation to its ending, recorded.

Order: begin in the sink, set the environment up, let the agent act, fix the ending (first cause wins), score what
the rules may use, clean up (always, also on cancel), seal. A failing scorer or clean-up never changes the ending. A
cancellation ends the agent; it waits for scorer, clean-up and seal, each of which has its own limit of time, for an
attempt that is finished is worth keeping.
"""

from __future__ import annotations

import asyncio
import copy
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec

from rollbook.envs import Environment, ForeignError, ToolSet, call_foreign, compute
from rollbook.envs.convert import plain_json
from rollbook.envs.finishing import to_its_end
from rollbook.errors import ConfigError, RecordError, RollbookError, StoreError, boundary
from rollbook.rewards import score_trace
from rollbook.rollout.judging import judging, record_judgements
from rollbook.rollout.limits import Budget, Limits, RequestRetries
from rollbook.rollout.loaded import LoadedPolicy, rollout_id
from rollbook.rollout.resources import Resources
from rollbook.rollout.session import Agent, Session, as_messages, chat
from rollbook.rollout.state import RolloutState, Stopped
from rollbook.rollout.stopwatch import Part, Stopwatch
from rollbook.trace import (
    ContextPolicy,
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

__all__ = ["DEFAULT_SETTINGS", "RolloutSettings", "head_for", "run_rollout"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RolloutSettings:
    """How rollouts run: the same for all rollouts of a run."""

    limits: Limits = field(default_factory=Limits)
    sampling: Sampling = field(default_factory=Sampling)
    """`seed` is the run's seed."""
    rules: EndingRules = field(default_factory=EndingRules)
    """Decide what is scored and what is run again."""
    agent: Agent = chat
    """Drives the session."""
    context: ContextPolicy = ContextPolicy.KEEP
    """How earlier turns stand in later prompts; recorded in the head of each trace."""
    cancelled_as: Reason = Reason.CANCELLED
    """The ending of a rollout whose task is cancelled. A run that can be resumed gives `interrupted`, for then the
    attempt is made again."""

    def __post_init__(self) -> None:
        if self.sampling.max_tokens is not None:
            raise ConfigError("Sampling.max_tokens is set by the limits; use Limits(max_generation=...) instead")


BIG_RECORD = 256 * 1024
"""Bytes of tokens and characters of text; encoding more takes over a millisecond."""

DEFAULT_SETTINGS = RolloutSettings()
"""Default limits, the model's own distribution, the default rules, the plain loop."""


async def run_rollout(
    env: Environment,
    head: TraceHead,
    loaded: LoadedPolicy,
    settings: RolloutSettings,
    *,
    seed: int,
    sink: Sink | None = None,
    resources: Resources | None = None,
    retries: RequestRetries | None = None,
) -> Trace:
    """Run one attempt and return its sealed trace. Raises only `StoreError` (the record cannot be kept) and
    cancellation.

    `retries`: requests that may be made again, shared with other attempts; None: as many as the limits say. A
    cancellation that carries a `Reason` (``task.cancel(reason)``) ends the rollout with it.
    """
    trace = Trace(msgspec.structs.replace(head, context_policy=settings.context))
    state = RolloutState(
        env=env,
        tools=ToolSet.of(env),
        loaded=loaded,
        sampling=msgspec.structs.replace(settings.sampling, seed=seed),
        budget=Budget(settings.limits),
        trace=trace,
        sink=MemorySink() if sink is None else sink,
        resources=Resources() if resources is None else resources,
        watch=Stopwatch(),
        retries=RequestRetries(settings.limits.request_retries) if retries is None else retries,
        context=settings.context,
    )
    state.sink.begin(trace)
    state.resources.roster.enter(trace, state.budget, state.watch)
    try:
        trace.end(state.close(await _attempt(state, settings.agent)))
    except asyncio.CancelledError as error:
        trace.end(state.close(Ending(_why(error, settings))))
        raise
    finally:
        await to_its_end(_finish(state, settings.rules))
    return trace


def _why(error: asyncio.CancelledError, settings: RolloutSettings) -> Reason:
    said: tuple[object, ...] = error.args
    return next((each for each in said if isinstance(each, Reason)), settings.cancelled_as)


async def _attempt(state: RolloutState, agent: Agent) -> Ending:
    """Set up and let the agent act. What stopped the session first is the ending, whatever the agent made of it."""
    cap = asyncio.timeout(state.budget.limits.wall)
    try:
        async with cap:
            ending = await _act(state, agent)
    except TimeoutError:
        ending = None
    if ending is None or cap.expired():
        return Ending(Reason.HARNESS, f"wall cap of {state.budget.limits.wall} s reached")
    if state.busy:
        return Ending(Reason.HARNESS, "the agent returned while a step of its own was running")
    return ending


async def _act(state: RolloutState, agent: Agent) -> Ending:
    try:
        with state.watch.span(Part.LIMITER):
            async with state.resources.sandbox.slot():
                with state.watch.span(Part.SANDBOX):
                    observation = await _set_up(state)
        with boundary("agent", _AgentError):
            await agent(Session(state, observation))
    except Stopped as stopped:
        return stopped.ending
    except RolloutFailure as failure:
        return failure.ending
    except RollbookError as error:
        # What escapes a user's own agent is its fault; a broken record, and what escapes our loop, is ours, and loud.
        ours = agent is chat or isinstance(error, RecordError)
        state.trace.note("agent", "".join(traceback.format_exception(error)))
        return Ending(Reason.INTERNAL if ours else Reason.HARNESS, str(error))
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        # Nobody cancelled the rollout: what was awaited had been cancelled by somebody else.
        return Ending(Reason.INTERNAL if agent is chat else Reason.HARNESS, "the agent cancelled itself")
    return Ending(Reason.FINAL_ANSWER)


class _AgentError(RollbookError):
    """Something that is no error of ours escaped the agent."""


async def _set_up(state: RolloutState) -> Sequence[Message]:
    # A copy: what an environment does to its task is not what was asked.
    task = copy.deepcopy(state.trace.task)
    try:
        return as_messages(await call_foreign(state.budget.limits.setup_timeout, state.env.setup, task))
    except ForeignError as error:
        raise RolloutFailure(Reason.ENV_SETUP, f"setup: {error}") from error


async def _finish(state: RolloutState, rules: EndingRules) -> None:
    """Score, clean up and seal. Runs whatever happened; the ending is fixed before."""
    trace = state.trace
    if trace.ending is None:
        trace.end(Ending(Reason.INTERRUPTED, "the process is stopping"))
    try:
        await _score(state, rules)
    finally:
        try:
            await _close(state)
        finally:
            state.resources.roster.leave(trace)


async def _score(state: RolloutState, rules: EndingRules) -> None:
    trace = state.trace
    if trace.ending is None or isinstance(rules.rule(trace.ending.reason), Drop | Retry):
        return
    with state.watch.span(Part.LIMITER):
        async with state.resources.scoring.slot():
            with state.watch.span(Part.SCORING):
                await _score_now(state)


async def _score_now(state: RolloutState) -> None:
    """The scorer's time begins here, where its slot is taken."""
    trace = state.trace
    asked = msgspec.structs.replace(trace.head, task=copy.deepcopy(trace.task))
    await _keep_final_state(state)
    seconds, resources = state.budget.limits.score_timeout, state.resources
    with judging(resources.judge, resources.judge_policies) as judged:
        try:
            await score_trace(state.env, trace, turn_rewards=state.turn_rewards, seconds=seconds)
        finally:
            trace.head = asked  # whatever the scorer did to it
            record_judgements(trace, judged)


async def _keep_final_state(state: RolloutState) -> None:
    try:
        found = await call_foreign(state.budget.limits.score_timeout, _final_state, state.env)
        state.trace.update(final_state=found)
    except RollbookError as error:
        state.trace.note("final_state", str(error))


async def _final_state(env: Environment) -> FinalState | None:
    match cast("object", await env.final_state()):
        case None:
            return None
        case FinalState() as final:
            fields = {"text": final.text, "data": plain_json(final.data, "data"), "files": final.files}
            return msgspec.convert(fields, FinalState)  # as it is read back
        case other:
            raise ForeignError(f"returned a {type(other).__name__}; return a FinalState or None")


async def _close(state: RolloutState) -> None:
    trace = state.trace
    with state.watch.span(Part.CLEANUP):
        await _clean_up(state)
    await state.resources.turnstile.turn()
    trace.update(times=state.watch.split(), finished=time.time())
    try:
        await _seal(state)
    except StoreError as error:
        # The record in memory is whole; the disk may have been full for a moment only.
        trace.note("store", str(error))
        await _seal(state)


async def _seal(state: RolloutState) -> None:
    """A large record is encoded and compressed in a thread: on the loop it would hold every other rollout up."""
    trace = state.trace
    size = trace.graph.nbytes + sum(len(message.content) for message in trace.graph.messages)
    if size < BIG_RECORD:
        state.sink.seal(trace)
    else:
        await compute(state.sink.seal, trace)


async def _clean_up(state: RolloutState) -> None:
    try:
        await call_foreign(state.budget.limits.cleanup_timeout, state.env.cleanup)
    except RollbookError as error:
        state.trace.note("cleanup", str(error))


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
    """The head of a new rollout of `task` in `env`. It holds a copy of the task; others of its group have theirs."""
    return TraceHead(
        rollout=rollout_id(group, member, attempt),
        group=group,
        task=copy.deepcopy(task),
        policies=(loaded.record(),),
        run=run,
        member=member,
        attempt=attempt,
        environment=env.name or type(env).__name__.lower(),
        tools=ToolSet.of(env).specs,
        config=config or {},
        started=time.time(),
        tokens=loaded.text is None,
    )
