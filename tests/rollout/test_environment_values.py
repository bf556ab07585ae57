"""What an environment returns is held to its form where it enters, so that it cannot cost the record."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from rollbook.envs import Environment, tool
from rollbook.rollout import RolloutSettings, group
from rollbook.rollout.session import Session
from rollbook.trace import Ending, Fault, FinalState, Message, Reason, Role, Scoring, ScoringStatus, Task, Trace
from tests.cases.case import Script, Talk, calls, run_one, says


class Finishes(Environment):
    def __init__(self, state: Any) -> None:
        self.state = state

    async def final_state(self) -> Any:
        return self.state


@pytest.mark.parametrize("data", [object(), {1, 2}, {1: 2}, b"\xff", float("nan"), [[object()]], 1j])
def test_a_final_state_that_is_not_plain_data_is_noted_and_left_out(data: Any) -> None:
    for env in (Finishes(FinalState(data=data)), Finishes(data)):
        trace = run_one(lambda env=env: env, Script([says("a")]))
        assert (trace.ending, trace.sealed) == (Ending(Reason.FINAL_ANSWER), True)
        assert trace.tail.final_state is None
        assert [error.where for error in trace.tail.errors] == ["final_state"]


def test_a_final_state_is_kept_as_it_reads_back() -> None:
    state = FinalState(text="t", data={"a": (1, None), "b": [2**80, "\ud835"]}, files={"f": "sha256:0"})
    trace = run_one(lambda: Finishes(state), Script([says("a")]))
    assert trace.tail.final_state == FinalState(
        text="t", data={"a": [1, None], "b": [2**80, "\ud835"]}, files={"f": "sha256:0"}
    )


def test_what_an_environment_does_to_its_task_is_its_own() -> None:
    class Consumes(Environment):
        async def setup(self, task: Task) -> tuple[Message, ...]:
            task.data.pop("answer").append("gone")
            return task.messages()

        async def score(self, trace: Trace) -> float:
            return len(trace.task.data.pop("answer"))

    async def agent(session: Session) -> None:
        session.task.data["answer"] = object()
        await session.reply(session.observation)

    task = Task(id="t", prompt="go", data={"answer": ["a"]})
    settings = RolloutSettings(agent=agent)
    made = asyncio.run(group(Consumes, task, Script([says("a")]).loaded(), 3, settings=settings))
    assert [trace.reward for trace in made] == [1.0, 1.0, 1.0]
    assert [trace.task for trace in made] == [task] * 3
    assert task.data == {"answer": ["a"]}


BLOCKS: Any = [{"type": "text", "text": "See"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA"}}]


def test_a_tool_that_returns_an_image_is_answered_by_an_error_of_the_environment() -> None:
    class Plots(Environment):
        @tool
        async def plot(self) -> Any:
            """Plots."""
            return BLOCKS

    trace = run_one(Plots, Script([calls("plot", "{}"), says("a")]))
    (result,) = [message for message in trace.graph.messages if message.role is Role.TOOL]
    assert result.fault is Fault.ENVIRONMENT
    assert result.content.startswith("error: plot returned what has no text: value[1]: a block of type 'image_url'")


def test_an_agent_that_shows_an_image_is_at_fault() -> None:
    async def agent(session: Session) -> None:
        await session.reply([Message(role=Role.USER, content=BLOCKS)])

    trace = run_one(Environment, Script([says("a")]), agent=agent)
    assert trace.ending is not None
    assert trace.ending.reason is Reason.HARNESS
    assert "cannot be kept" in trace.ending.detail
    assert len(trace.graph) == 0


@pytest.mark.parametrize(
    "shown",
    [Message(role="nobody"), Message(role=Role.USER, content=5), Message(role=Role.USER, content=BLOCKS)],  # pyright: ignore
)
def test_a_first_observation_that_cannot_be_kept_is_an_env_setup_error(shown: Message) -> None:
    class Shows(Environment):
        async def setup(self, task: Task) -> list[Message]:
            return [shown]

    trace = run_one(Shows, Script([says("a")]))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.ENV_SETUP
    assert "cannot be kept" in trace.ending.detail


def test_code_that_calls_exit_fails_where_it_stands() -> None:
    class Exits(Environment):
        async def score(self, trace: Trace) -> float:
            sys.exit(0)

        async def cleanup(self) -> None:
            sys.exit(0)

    async def agent(session: Session) -> None:
        await session.reply(session.observation)
        sys.exit(0)

    trace = run_one(Exits, Script([says("a")]), agent=agent)
    assert trace.ending == Ending(Reason.HARNESS, "agent: SystemExit: 0")
    assert "cleanup" in [error.where for error in trace.tail.errors]
    trace = run_one(Exits, Script([says("a")]))
    assert trace.ending == Ending(Reason.FINAL_ANSWER)
    assert trace.tail.scoring == Scoring(ScoringStatus.FAILED, "SystemExit: 0")


@pytest.mark.parametrize("value", [object(), {1}, float("nan"), [{"type": "image", "data": "iVBO"}]])
def test_a_step_whose_observation_has_no_text_is_a_fault_of_the_environment(value: Any) -> None:
    trace = run_one(lambda: Talk([value]), Script([says("a")]))
    assert trace.ending is not None
    assert trace.ending.reason is Reason.TOOL_SERVER
    assert "no text" in trace.ending.detail


def test_an_observation_keeps_its_type_and_its_bytes() -> None:
    trace = run_one(lambda: Talk([b"\x00\xff", {"k": 1}, None, ""]), Script([says("a")]))
    found = [(node.content, node.value_type, node.raw) for node in trace.graph.messages[2::2]]
    assert found == [
        ("\0\\xff", "bytes", b"\x00\xff"),
        ('{"k": 1}', "dict", None),
        ("null", "NoneType", None),
        ("", "str", None),
    ]
