"""What follows a reply: its tool calls execute, or the environment answers it.

Rules: only `ok` calls execute, side by side and at most so many at once; every other attempted call is answered by
an error that the policy sees next, but for calls inside reasoning, which are only counted; answers keep the order
of the calls. Where an answer ends the rollout it is recorded first. A call waits for a slot of its tool; the time
belongs to the limiter, and is no time of the rollout's own, only while no other call of the reply runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import cast

from rollbook.envs import (
    ForeignError,
    NotConvertible,
    StepResult,
    ToolOutcome,
    call_foreign,
    error_observation,
    failed,
    to_text,
)
from rollbook.rollout.state import RolloutState
from rollbook.rollout.stopwatch import Part
from rollbook.rollout.turns import observe
from rollbook.trace import Ending, Fault, Message, ParseStatus, Reason, Role, RolloutFailure, ToolCall

__all__ = ["answer_calls", "answer_reply"]


async def answer_calls(state: RolloutState, reply: Message) -> Sequence[Message]:
    """Execute the reply's `ok` calls and answer every attempted one, in order."""
    asked = [call for call in reply.tool_calls if call.status is not ParseStatus.INSIDE_REASONING]
    places = [place for place, call in enumerate(asked) if call.status is ParseStatus.OK]
    good = {place: asked[place] for place in places[: state.budget.limits.max_parallel_calls]}
    over = state.budget.spend_calls(len(good))
    if over is not None:
        state.stop(over)
    with state.watch.span(Part.TOOL):
        outcomes = await state.within_deadline(_execute(state, good))
    for outcome in outcomes.values():
        state.reward(outcome.reward)
    messages = [
        outcomes[place].message if place in outcomes else _not_run(call, len(good)) for place, call in enumerate(asked)
    ]
    ending = next((outcome.ending for outcome in outcomes.values() if outcome.ending is not None), None)
    if ending is not None:
        await observe(state, messages)
        state.stop(ending)
    return messages


async def answer_reply(state: RolloutState, reply: Message) -> Sequence[Message]:
    """Let the environment answer a reply that calls no tool; None from it makes the reply the final answer."""
    with state.watch.span(Part.TOOL):
        try:
            result = await state.within_deadline(call_foreign(None, _step, state, reply))
            shown = to_text(result.observation) if result is not None else None
        except ForeignError as error:
            raise RolloutFailure(Reason.TOOL_SERVER, f"step: {error}") from error
        except NotConvertible as error:
            raise RolloutFailure(Reason.TOOL_SERVER, f"step returned what has no text: {error}") from error
    if result is None or shown is None:
        state.stop(Ending(Reason.FINAL_ANSWER))
    state.reward(result.reward)
    messages = (Message(role=Role.USER, content=shown.text, value_type=shown.value_type, raw=shown.raw),)
    if result.ending is not None:
        if shown.text:
            await observe(state, messages)
        state.stop(result.ending)
    return messages


async def _step(state: RolloutState, reply: Message) -> StepResult | None:
    match cast("object", await state.env.step(reply)):
        case None | StepResult() as result:
            return result
        case other:
            raise ForeignError(f"returned a {type(other).__name__}; return a StepResult or None")


async def _execute(state: RolloutState, calls: Mapping[int, ToolCall]) -> dict[int, ToolOutcome]:
    """Run calls side by side; the outcomes by place (a model that writes ids itself may write one twice), in the
    order of the calls. A failure that ends the rollout cancels the others."""
    together = _Together(state)
    failures: list[RolloutFailure] = []
    outcomes: dict[int, ToolOutcome] = {}
    running: list[asyncio.Task[None]] = []

    async def run(place: int, call: ToolCall) -> None:
        try:
            async with together.slot(call):
                outcomes[place] = await state.tools.invoke(call)
        except RolloutFailure as failure:
            failures.append(failure)
            for task in running:
                task.cancel()

    async with asyncio.TaskGroup() as group:
        running += [group.create_task(run(place, call)) for place, call in calls.items()]
    if failures:
        raise failures[0]
    busy = sum(outcome.seconds for outcome in outcomes.values())
    state.watch.overlapped += max(busy - together.seconds(), 0.0)
    return {place: outcomes[place] for place in calls}


class _Together:
    """Calls that run side by side: tells the rollout's time when all that are left wait for a slot."""

    def __init__(self, state: RolloutState) -> None:
        self._state = state
        self._running = self._waiting = 0
        self._part, self._since = Part.TOOL, state.watch.elapsed
        self._ran = 0.0

    @asynccontextmanager
    async def slot(self, call: ToolCall) -> AsyncGenerator[None]:
        """A slot of the call's tool."""
        waiting = True
        self._count(waiting=1)
        try:
            async with self._state.resources.tool(str(call.name)).slot():
                self._count(waiting=-1, running=1)
                waiting = False
                yield
        finally:
            self._count(waiting=-1) if waiting else self._count(running=-1)

    def seconds(self) -> float:
        """Seconds during which not all that are left waited."""
        return self._ran + (self._state.watch.elapsed - self._since if self._part is Part.TOOL else 0.0)

    def _count(self, *, waiting: int = 0, running: int = 0) -> None:
        self._waiting += waiting
        self._running += running
        part = Part.LIMITER if self._waiting and not self._running else Part.TOOL
        if part is self._part:
            return
        self._ran, self._since = self.seconds(), self._state.watch.elapsed
        self._part = part
        if self._state.own_time is not None:
            self._state.own_time.turn_to(part)


def _not_run(call: ToolCall, limit: int) -> Message:
    """The answer to a call that did not execute."""
    if call.status is ParseStatus.OK:
        return failed(call, f"not executed: only {limit} calls run at once; call it again", Fault.POLICY)
    return error_observation(call)
