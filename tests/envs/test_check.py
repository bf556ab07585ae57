"""The conformance check finds each kind of fault, and only that."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from rollbook.envs.check import EnvCheck, check_env
from rollbook.envs.protocol import Environment
from rollbook.envs.tool import tool
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

counter = itertools.count()
cleaned: list[str] = []


class Good(Environment):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"{seed}-{index}", prompt=f"task {index}") for index in range(count)]

    @tool
    async def look(self) -> str:
        """Looks."""
        return ""

    async def cleanup(self) -> None:
        cleaned.append(type(self).__name__)


class NoTasks(Environment):
    pass


class TooFew(Good):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return super().tasks(min(count, 4), seed)


class SameIds(Good):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id="same", prompt=each.prompt) for each in super().tasks(count, seed)]


class NotPlain(Good):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=each.id, prompt="p", target=(1, 2)) for each in super().tasks(count, seed)]


class NotSeeded(Good):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"t{index}", prompt=str(next(counter))) for index in range(count)]


class PlainStep(Good):
    def step(self, reply: Message) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


class NoPrefix(Good):
    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return list(reversed(super().tasks(count, seed)))


class SameTools(Good):
    @tool(name="look")
    async def other(self) -> str:
        """Looks too."""
        return ""


class Undescribed(Good):
    @tool
    async def silent(self) -> str:
        return ""


class BadSetup(Good):
    async def setup(self, task: Task) -> Sequence[Message]:
        raise OSError(f"no room for {task.id}")


class EmptySetup(Good):
    async def setup(self, task: Task) -> Sequence[Message]:
        return []


class EndsWithAssistant(Good):
    async def setup(self, task: Task) -> Sequence[Message]:
        return [*task.messages(), Message(role=Role.ASSISTANT, content="hi")]


class BadScore(Good):
    async def score(self, trace: Trace) -> float:
        assert trace.answer is not None, "no answer"
        return 1.0


class BadCleanup(Good):
    async def cleanup(self) -> None:
        raise OSError("still busy")


@pytest.mark.parametrize(
    ("environment", "checks", "problem"),
    [
        (Good, [], ""),
        (NoTasks, [EnvCheck.TASKS], "NoTasks has no tasks"),
        (TooFew, [EnvCheck.TASKS], "8 tasks were asked for, 4 came"),
        (SameIds, [EnvCheck.TASKS], "not unique: same"),
        (NotPlain, [EnvCheck.TASKS] * 8, "does not survive JSON"),
        (NotSeeded, [EnvCheck.SEED, EnvCheck.PREFIX], "gave other tasks"),
        (NoPrefix, [EnvCheck.PREFIX], "do not begin with"),
        (PlainStep, [EnvCheck.METHODS], "write 'async def step' for PlainStep.step"),
        (SameTools, [EnvCheck.TOOLS], "two tools are called 'look'"),
        (Undescribed, [EnvCheck.TOOLS], "'silent' has no docstring"),
        (BadSetup, [EnvCheck.SETUP], "no room for 0-0"),
        (EmptySetup, [EnvCheck.SETUP], "is empty"),
        (EndsWithAssistant, [EnvCheck.SETUP], "ends with an assistant"),
        (BadScore, [EnvCheck.SCORE], "AssertionError: no answer"),
        (BadCleanup, [EnvCheck.CLEANUP], "still busy"),
    ],
)
def test_each_fault_is_found(environment: Any, checks: list[EnvCheck], problem: str) -> None:
    findings = asyncio.run(check_env(environment))
    assert [finding.check for finding in findings] == checks
    assert not findings or problem in findings[0].problem


def test_cleanup_runs_also_after_a_failed_setup() -> None:
    cleaned.clear()
    asyncio.run(check_env(BadSetup))
    assert cleaned == ["BadSetup"]
