"""A session: what an agent holds while it acts. The session renders, samples, executes and records; the agent
decides the order."""

from __future__ import annotations

import copy
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from rollbook.envs import ForeignError
from rollbook.errors import RecordError
from rollbook.rollout.acting import answer_calls, answer_reply
from rollbook.rollout.state import RolloutState
from rollbook.rollout.turns import take_turn
from rollbook.trace import Message, ParseStatus, Reason, RolloutFailure, Task
from rollbook.trace.wire import decode_record, encode_record

__all__ = ["Agent", "Session", "as_messages", "chat"]


class Session:
    """The agent's view of a running rollout. Every method ends the rollout where a limit, an ending or a failure
    says so."""

    def __init__(self, state: RolloutState, observation: Sequence[Message]) -> None:
        self._state = state
        self.observation = tuple(observation)
        """What the environment showed first."""
        self.task: Task = copy.deepcopy(state.trace.task)
        """What is asked; a copy."""

    async def reply(self, observation: Sequence[Message]) -> Message:
        """Show the policy an observation, at least one message, and get its reply."""
        with self._state.step():
            try:
                shown = as_messages(observation)
            except ForeignError as error:
                raise RolloutFailure(Reason.HARNESS, f"the agent showed what is no observation: {error}") from error
            return await take_turn(self._state, shown)

    async def answer(self, reply: Message) -> Sequence[Message]:
        """Act on the last reply, once: execute its tool calls, or let the environment answer it. Returns the next
        observation."""
        state = self._state
        with state.step():
            if state.unanswered is None or reply != state.unanswered:
                raise RolloutFailure(Reason.HARNESS, "the agent answered what is not the last reply, or answered twice")
            state.unanswered = None
            if any(call.status is not ParseStatus.INSIDE_REASONING for call in reply.tool_calls):
                return await answer_calls(state, reply)
            return await answer_reply(state, reply)


def as_messages(shown: object) -> Sequence[Message]:
    """What foreign code shows the policy, as it would be read back from the record. Raises `ForeignError`."""
    if not isinstance(shown, list | tuple):
        raise ForeignError(f"a {type(shown).__name__} instead of a list of messages")
    messages = [each for each in cast("Sequence[object]", shown) if isinstance(each, Message)]
    if not messages or len(messages) < len(cast("Sequence[object]", shown)):
        raise ForeignError("an observation is a list of at least one Message, and of nothing else")
    try:
        return decode_record(encode_record(messages), list[Message], "messages")
    except RecordError as error:
        raise ForeignError(f"a Message cannot be kept: {error}") from error


Agent = Callable[[Session], Awaitable[None]]
"""Anything that drives a session. Returning without an ending counts as a final answer."""


async def chat(session: Session) -> None:
    """The plain agent loop: reply, act, look, until something ends it."""
    observation: Sequence[Message] = session.observation
    while True:
        reply = await session.reply(observation)
        observation = await session.answer(reply)
