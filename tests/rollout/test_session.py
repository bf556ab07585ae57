"""A session: an agent sees one ending, takes one step at a time, and answers the last reply once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from rollbook.envs import tool
from rollbook.errors import RollbookError, UsageError
from rollbook.rollout import Limits, ResourceLimit, Resources, Session, Stopped
from rollbook.trace import Message, Reason, Role, RolloutFailure, Task, ToolCall
from tests.rollout.made import TASK, Engine, Talk, attempt, call, detail, never, play, says, why


class Adds(Talk):
    def __init__(self) -> None:
        super().__init__()
        self.ran = 0

    @tool
    async def add(self, a: int, b: int) -> int:
        """Adds."""
        self.ran += 1
        return a + b


def user(text: str) -> list[Message]:
    return [Message(role=Role.USER, content=text)]


# The ending sticks


def test_an_agent_that_swallows_a_stop_gets_it_again() -> None:
    seen: list[str] = []

    async def stubborn(session: Session) -> None:
        for _ in range(3):
            with suppress(Stopped):
                reply = await session.reply(user("more"))
                seen.append(reply.content)
                await session.answer(reply)
                seen.append("answered")

    trace = play(Talk("a", "b", "c"), says("x"), limits=Limits(max_turns=1), agent=stubborn)
    assert why(trace) is Reason.MAX_TURNS
    assert seen == ["x", "answered"]
    assert len(trace.calls) == 1


def test_an_agent_that_raises_behind_an_ending_changes_nothing() -> None:
    async def agent(session: Session) -> None:
        reply = await session.reply(session.observation)
        with pytest.raises(Stopped, match="submitted/final_answer"):
            await session.answer(reply)
        raise ValueError("too late")

    trace = play(Talk(), says("x"), agent=agent)
    assert why(trace) is Reason.FINAL_ANSWER
    assert "too late" in trace.tail.errors[0].text, "it is kept all the same"


def test_the_first_failure_sticks() -> None:
    async def agent(session: Session) -> None:
        for _ in range(2):
            with suppress(RollbookError):
                await session.reply(session.observation)

    trace = play(Talk(), RolloutFailure(Reason.RATE_LIMITED, "busy"), says("x"), agent=agent)
    assert (why(trace), detail(trace), len(trace.calls)) == (Reason.RATE_LIMITED, "busy", 1)


# Agents of one's own


def test_returning_early_is_a_final_answer() -> None:
    async def once(session: Session) -> None:
        await session.reply(session.observation)

    trace = play(Talk(), says("five"), agent=once)
    assert (why(trace), trace.text, trace.reward) == (Reason.FINAL_ANSWER, "five", 1.0)


def test_an_agent_may_show_what_it_likes_and_see_its_task() -> None:
    async def agent(session: Session) -> None:
        assert session.task == TASK
        assert session.observation == TASK.messages()
        first = await session.reply(user("my own words"))
        await session.reply(user(f"you said {first.content}"))

    trace = play(Talk(), says("five"), agent=agent)
    shown = [message.content for message in trace.graph.messages]
    assert shown == ["my own words", "five", "you said five", "five"]


@pytest.mark.parametrize("error", [ValueError("mine"), UsageError("mine"), TimeoutError("mine")])
def test_an_agent_that_raises_is_the_harness_and_keeps_its_traceback(error: Exception) -> None:
    async def agent(session: Session) -> None:
        await session.reply(session.observation)
        raise error

    trace = play(Talk(), says("x"), agent=agent)
    assert why(trace) is Reason.HARNESS
    assert "mine" in detail(trace)
    assert "Traceback" in trace.tail.errors[0].text
    assert len(trace.policy_nodes) == 1
    assert trace.reward is None


def test_a_bug_of_ours_below_an_agent_of_ones_own_is_not_the_agents() -> None:
    async def agent(session: Session) -> None:
        await session.reply(session.observation)

    trace = play(Talk(), ZeroDivisionError("ours"), agent=agent)
    assert why(trace) is Reason.INTERNAL
    assert "ZeroDivisionError: ours" in trace.tail.errors[0].text


def test_an_agent_that_cancels_itself_failed() -> None:
    async def agent(session: Session) -> None:
        other = asyncio.ensure_future(asyncio.sleep(100))
        other.cancel()
        await other

    assert why(play(Talk(), says("x"), agent=agent)) is Reason.HARNESS


@pytest.mark.parametrize("shown", [[], (), "text", None, ["text"], [*user("a"), "b"]])
def test_an_agents_observation_is_looked_at(shown: Any) -> None:
    async def agent(session: Session) -> None:
        await session.reply(shown)

    trace = play(Talk(), says("x"), agent=agent)
    assert why(trace) is Reason.HARNESS
    assert trace.calls == []


# Answers


async def twice(session: Session) -> None:
    reply = await session.reply(session.observation)
    await session.answer(reply)
    await session.answer(reply)


async def too_early(session: Session) -> None:
    await session.answer(Message(role=Role.ASSISTANT, content="x"))


async def invented(session: Session) -> None:
    reply = await session.reply(session.observation)
    made_up = ToolCall(id="call_0_9", name="add", arguments={"a": 1, "b": 1})
    await session.answer(msgspec.structs.replace(reply, tool_calls=(*reply.tool_calls, made_up)))


async def older(session: Session) -> None:
    reply = await session.reply(session.observation)
    await session.reply(user("go on"))
    await session.answer(reply)


@pytest.mark.parametrize(("agent", "ran"), [(twice, 1), (too_early, 0), (invented, 0), (older, 0)])
def test_only_the_last_reply_is_answered_and_only_once(agent: Any, ran: int) -> None:
    env = Adds()
    trace = play(env, says(call()), says("five"), agent=agent)
    assert why(trace) is Reason.HARNESS
    assert "last reply" in detail(trace)
    assert env.ran == ran


def test_two_steps_at_once_are_refused_and_the_conversation_stays_whole() -> None:
    async def slowly() -> Any:
        await asyncio.sleep(0.01)
        return says("x")

    async def agent(session: Session) -> None:
        await asyncio.gather(*(session.reply(user(f"{n}")) for n in range(2)), return_exceptions=True)

    trace = play(Talk(), slowly, agent=agent)
    assert why(trace) is Reason.HARNESS
    assert "one at a time" in detail(trace)
    assert [message.content for message in trace.graph.messages] == ["0", "x"]


def test_an_agent_that_leaves_a_step_running_failed_and_gets_no_further_one() -> None:
    left: list[asyncio.Task[Any]] = []

    async def leaves(session: Session) -> None:
        async def goes_on() -> None:
            await session.reply(session.observation)

        left.append(asyncio.ensure_future(goes_on()))
        await asyncio.sleep(0)

    async def scenario() -> Any:
        trace = await attempt(Talk(), Engine([never]), agent=leaves)
        left[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await left[0]
        return trace

    trace = asyncio.run(scenario())
    assert why(trace) is Reason.HARNESS
    assert "while a step" in detail(trace)


def test_a_session_whose_rollout_is_over_takes_no_step() -> None:
    kept: list[Session] = []

    async def keeps(session: Session) -> None:
        kept.append(session)
        await session.reply(session.observation)

    async def scenario() -> Any:
        trace = await attempt(Talk(), Engine([says("x")]), agent=keeps)
        with pytest.raises(Stopped, match="final_answer"):
            await kept[0].reply(user("more"))
        return trace

    assert len(asyncio.run(scenario()).calls) == 1


# Time


def test_waiting_for_the_limiter_is_not_charged() -> None:

    async def scenario() -> Any:
        resources = Resources({"engine": ResourceLimit(limit=1)})
        limiter = resources.engine
        running = asyncio.ensure_future(
            attempt(Talk(), Engine([says("x")]), limits=Limits(deadline=0.15), resources=resources)
        )
        async with limiter.slot():
            await asyncio.sleep(0.3)
            assert limiter.waiting == 1
        return await running

    trace = asyncio.run(scenario())
    assert why(trace) is Reason.FINAL_ANSWER
    assert trace.tail.times.limiter >= 0.25


def test_the_wall_cap_is_an_error() -> None:
    trace = play(Talk(), never, limits=Limits(deadline=None, wall=0.05))
    assert why(trace) is Reason.HARNESS
    assert "wall cap of 0.05 s" in detail(trace)
    assert trace.calls[0].error == "cancelled while it ran"
    assert trace.reward is None


def test_whatever_an_agent_makes_of_the_wall_cap_it_came_first() -> None:
    async def agent(session: Session) -> None:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise ValueError("sulking") from None

    trace = play(Talk(), says("x"), limits=Limits(wall=0.05), agent=agent)
    assert "wall cap" in detail(trace)


@pytest.mark.parametrize("shown", [None, [], "text", ["text"]])
def test_a_setup_that_shows_nothing_is_an_env_setup_error(shown: Any) -> None:
    class Odd(Talk):
        async def setup(self, task: Task) -> Sequence[Message]:
            return shown

    assert why(play(Odd(), says("x"))) is Reason.ENV_SETUP
