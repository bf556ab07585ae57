"""The guessing world: steps, step rewards, detected endings."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.envs.protocol import StepResult
from rollbook.errors import UsageError
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.worlds.guess import Guess
from tests.worlds.made import played, rewards

TASK = Task(id="t", prompt="Guess", target=5)


def steps(*said: str, guesses: int = 6) -> list[StepResult]:
    async def play() -> list[StepResult]:
        env = Guess(8, guesses)
        await env.setup(TASK)
        return [await env.step(Message(role=Role.ASSISTANT, content=text)) for text in said]

    return asyncio.run(play())


def test_hints_lead_to_the_goal() -> None:
    assert steps("4", "I say 6!", "5") == [
        StepResult("higher", 0.1),
        StepResult("lower", 0.1),
        StepResult("right", 1.0, Ending(Reason.GOAL_REACHED, "found 5")),
    ]


def test_a_guess_outside_what_is_left_earns_nothing() -> None:
    assert [each.reward for each in steps("4", "4", "1", "99")] == [0.1, None, None, None]


@pytest.mark.parametrize("said", ["", "no idea", "3 or 4", "4.5", "v5", "-5", "fifth 5th"])
def test_a_reply_without_exactly_one_number_is_asked_again(said: str) -> None:
    assert steps(said) == [StepResult("Reply with one number.")]


def test_when_the_guesses_are_used_up_all_is_lost() -> None:
    assert steps("1", "x", guesses=2)[-1].ending == Ending(Reason.UNRECOVERABLE, "2 guesses used")
    assert steps("5", guesses=1)[-1].ending == Ending(Reason.GOAL_REACHED, "found 5")


def test_two_games_in_range_stand_before_the_task() -> None:
    messages = asyncio.run(Guess(8).setup(TASK))
    assert [message.content for message in messages if message.role is Role.ASSISTANT] == ["4", "6", "4", "2"]
    assert messages[-1].content == "Guess"
    for high in range(2, 30):
        shown = asyncio.run(Guess(high).setup(TASK))
        assert all(1 <= int(each.content) <= high for each in shown if each.role is Role.ASSISTANT)


def test_a_second_setup_starts_anew() -> None:
    async def play() -> StepResult:
        env = Guess(8, 2)
        await env.setup(TASK)
        await env.step(Message(role=Role.ASSISTANT, content="4"))
        await env.setup(TASK)
        return await env.step(Message(role=Role.ASSISTANT, content="4"))

    assert asyncio.run(play()) == StepResult("higher", 0.1)


def test_the_score_is_read_from_the_messages() -> None:
    higher = Message(role=Role.USER, content="higher")
    assert rewards(Guess(), played(TASK, "4", higher, "5", reason=Reason.GOAL_REACHED)).total == 1.0
    assert rewards(Guess(), played(TASK, "4", higher, "6", reason=Reason.UNRECOVERABLE)).total == 0.0


def test_secrets_differ_and_stay_in_range() -> None:
    secrets = {task.target for task in Guess(4).tasks(40)}
    assert secrets == {1, 2, 3, 4}
    for high, guesses in ((1, 1), (8, 0)):
        with pytest.raises(UsageError, match="at least"):
            Guess(high, guesses)
