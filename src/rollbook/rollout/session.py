"""A session: what an agent holds while it acts. The session renders, samples, executes and records; the agent
decides the order."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from rollbook.rollout.acting import answer_calls, answer_reply
from rollbook.rollout.state import RolloutState
from rollbook.rollout.turn import take_turn
from rollbook.trace import Message, ParseStatus, Task

__all__ = ["Agent", "Session", "chat"]


class Session:
    """The agent's view of a running rollout. Every method ends the rollout where a limit, an ending or a failure
    says so."""

    def __init__(self, state: RolloutState, observation: Sequence[Message]) -> None:
        self._state = state
        self.observation = tuple(observation)
        """What the environment showed first."""

    @property
    def task(self) -> Task:
        """What is asked."""
        return self._state.trace.task

    async def reply(self, observation: Sequence[Message]) -> Message:
        """Show the policy an observation and get its reply."""
        with self._state.step():
            return await take_turn(self._state, observation)

    async def answer(self, reply: Message) -> Sequence[Message]:
        """Act on a reply: execute its tool calls, or let the environment answer it. Returns the next observation."""
        with self._state.step():
            if any(call.status is not ParseStatus.INSIDE_REASONING for call in reply.tool_calls):
                return await answer_calls(self._state, reply)
            return await answer_reply(self._state, reply)


Agent = Callable[[Session], Awaitable[None]]
"""Anything that drives a session. Returning without an ending counts as a final answer."""


async def chat(session: Session) -> None:
    """The plain agent loop: reply, act, look, until something ends it."""
    observation: Sequence[Message] = session.observation
    while True:
        reply = await session.reply(observation)
        observation = await session.answer(reply)
