"""The conformance check finds each kind of fault, and only that."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

import pytest

from rollbook.envs.protocol import Environment
from rollbook.envs.solutions import Solutions, calls, says
from rollbook.envs.tool import tool
from rollbook.rollout.env_check import EnvCheck, check_env, env_report
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


# solutions


class Solved(Good):
    """Wants the word twice: once by the tool, once in the answer."""

    gold: Any = (calls("look"), says("word"))
    noop: Any = (says(""),)

    def solutions(self, task: Task) -> Any:
        return Solutions(self.gold, self.noop)

    async def score(self, trace: Trace) -> float:
        looked = any(message.name == "look" and message.fault is None for message in trace.graph.messages)
        return float(looked and trace.text == "word")


class Generous(Solved):
    async def score(self, trace: Trace) -> float:
        return 1.0


class Mean(Solved):
    async def score(self, trace: Trace) -> float:
        return 0.0


class Dead(Solved):
    async def score(self, trace: Trace) -> float:
        if trace.answer is not None:
            raise OSError("no judge")
        return 0.0


class BadCall(Solved):
    gold = (calls("look", where="there"), says("word"))


class NoReplies(Solved):
    gold = ()


class NotTheAssistant(Solved):
    noop = (Message(role=Role.USER, content="hm"),)


class NoSolutions(Solved):
    def solutions(self, task: Task) -> Any:
        return [says("word")]


class Raises(Solved):
    def solutions(self, task: Task) -> Any:
        raise KeyError("gold")


class AsyncSolutions(Solved):
    async def solutions(self, task: Task) -> Any:  # pyright: ignore[reportIncompatibleMethodOverride]
        return None


@pytest.mark.parametrize(
    ("environment", "check", "words"),
    [
        (Generous, EnvCheck.NOOP, "scored 1, not 0; it ended as submitted/final_answer"),
        (Mean, EnvCheck.GOLD, "scored 0, not 1"),
        (Dead, EnvCheck.GOLD, "scored nothing (failed: OSError: no judge), not 1"),
        (BadCall, EnvCheck.GOLD, "error: bad_arguments"),
        (NoReplies, EnvCheck.SOLUTIONS, "at least one"),
        (NotTheAssistant, EnvCheck.SOLUTIONS, "user"),
        (NoSolutions, EnvCheck.SOLUTIONS, "a list; give Solutions"),
        (Raises, EnvCheck.SOLUTIONS, "KeyError: 'gold'"),
        (AsyncSolutions, EnvCheck.METHODS, "write 'def solutions'"),
    ],
)
def test_solutions_hold_the_scorer_to_1_and_0(environment: type[Environment], check: EnvCheck, words: str) -> None:
    findings = asyncio.run(check_env(environment, count=2, solved=1))
    assert check in {each.check for each in findings}
    assert any(words in each.problem for each in findings), findings


def test_solutions_are_replayed_as_often_as_asked_and_cleaned_up_behind() -> None:
    report = asyncio.run(env_report(Solved, 4))
    assert (report.findings, report.tasks, report.solved) == ((), 4, 4)
    cleaned.clear()
    report = asyncio.run(env_report(Solved, 4, solved=1))
    assert (report.findings, report.solved, len(cleaned)) == ((), 1, 3)
    assert asyncio.run(env_report(Good, 4)).solved == 0


def test_what_is_broken_already_is_not_replayed() -> None:
    class Broken(Solved):
        async def cleanup(self) -> None:
            raise OSError("still busy")

    assert asyncio.run(env_report(Broken, 4)).solved == 0
