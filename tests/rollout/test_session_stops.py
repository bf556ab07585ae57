"""What stops a session is the rollout's ending, whatever the agent made of it."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from rollbook.errors import RollbookError
from rollbook.policy import ScriptedFailure
from rollbook.rollout import Limits, Session
from rollbook.trace import Finish, Reason
from tests.cases.case import Script, Talk, byte_ids, reply, run_one, says


def test_a_failure_sticks_though_the_agent_goes_on() -> None:
    async def stubborn(session: Session) -> None:
        for _ in range(3):
            with suppress(RollbookError):
                await session.reply(session.observation)

    script = Script([ScriptedFailure(reason=Reason.RATE_LIMITED), says("late")])
    trace = run_one(Talk, script, agent=stubborn)
    assert trace.ending is not None
    assert trace.ending.reason is Reason.RATE_LIMITED
    assert len(script.prompts) == 1, "nothing is asked of the engine behind the ending"


def test_a_limit_inside_a_task_group_is_still_that_limit() -> None:
    async def grouped(session: Session) -> None:
        await session.reply(session.observation)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(session.reply(session.observation))

    trace = run_one(Talk, Script([says("hi")]), agent=grouped, limits=Limits(max_turns=1))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.MAX_TURNS


@pytest.mark.parametrize(("stop", "reason"), [((), Reason.ENGINE_CONTRACT), (("\n\n",), Reason.FINAL_ANSWER)])
def test_a_stop_string_is_believed_only_where_one_was_asked_for(stop: tuple[str, ...], reason: Reason) -> None:
    script = Script([reply(byte_ids("done\n\n"), Finish.STOP_STRING)])
    trace = run_one(Talk, script, stop=stop)
    assert trace.ending is not None
    assert trace.ending.reason is reason


@pytest.mark.parametrize(
    ("text", "problem"), [("done\n\n!", "behind the stop string"), ("done\n", "end before a stop")]
)
def test_a_reply_ends_with_the_token_that_completes_the_stop_string(text: str, problem: str) -> None:
    trace = run_one(Talk, Script([reply(byte_ids(text), Finish.STOP_STRING)]), stop=("\n\n",))
    assert trace.ending is not None
    assert (trace.ending.reason, trace.graph.sampled_count) == (Reason.ENGINE_CONTRACT, 0)
    assert problem in trace.ending.detail
