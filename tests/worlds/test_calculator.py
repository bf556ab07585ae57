"""The calculator world: its tasks, its tool, its scorer."""

from __future__ import annotations

import asyncio

import pytest

from rollbook.envs.toolset import ToolSet
from rollbook.errors import UsageError
from rollbook.trace.ending import Reason
from rollbook.trace.message import Fault, Message, Role, ToolCall
from rollbook.trace.task import Task
from rollbook.worlds.arithmetic import evaluate, show
from rollbook.worlds.calculator import Calculator
from tests.worlds.made import played, rewards

TASK = Task(id="t", prompt="Compute 12*7", target="84")
CALL = Message(
    role=Role.ASSISTANT, tool_calls=(ToolCall(id="c", name="calculator", arguments={"expression": "12*7"}, raw="84"),)
)
RESULT = Message(role=Role.TOOL, content="84", call_id="c", name="calculator")


def use(expression: object) -> Message:
    call = ToolCall(id="c", name="calculator", arguments={"expression": expression})
    return asyncio.run(ToolSet.of(Calculator()).invoke(call)).message


@pytest.mark.parametrize("difficulty", [1, 2, 3])
def test_tasks_are_one_operation_on_operands_of_so_many_digits(difficulty: int) -> None:
    tasks = Calculator(difficulty).tasks(50)
    for task in tasks:
        assert isinstance(task.prompt, str)
        expression = task.prompt.removeprefix("Compute ")
        left, right = expression.replace("*", " ").replace("+", " ").replace("-", " ").split()
        assert (len(left), len(right)) == (difficulty, difficulty)
        assert task.target == show(evaluate(expression))
    assert {task.data["expression"][difficulty] for task in tasks} == set("+-*")


def test_another_seed_gives_other_tasks_with_other_ids() -> None:
    one, two = Calculator().tasks(8, seed=1), Calculator().tasks(8, seed=2)
    assert [task.prompt for task in one] != [task.prompt for task in two]
    assert not {task.id for task in one} & {task.id for task in two}


def test_an_unknown_difficulty_is_refused() -> None:
    with pytest.raises(UsageError, match="difficulty is 1, 2 or 3"):
        Calculator(4)


def test_the_tool_calculates_and_a_wrong_expression_is_the_policys_fault() -> None:
    assert (use("12*7").content, use("12*7").fault) == ("84", None)
    wrong = use("12 x 7")
    assert wrong.content == "error: cannot read 'x'; use numbers, + - * / // % ** and brackets"
    assert wrong.fault is Fault.POLICY
    assert use(12).fault is Fault.POLICY


@pytest.mark.parametrize(
    ("answer", "total"),
    [
        ("The answer is 84.", 1.0),
        ("12*7 is 84", 1.0),
        ("84, or maybe 85", 0.0),
        ("The answer is 840.", 0.0),
        ("-84", 0.0),
        ("eighty-four", 0.0),
        ("", 0.0),
    ],
)
def test_the_last_number_of_the_answer_counts(answer: str, total: float) -> None:
    assert rewards(Calculator(), played(TASK, CALL, RESULT, answer)).total == total


def test_a_call_is_no_answer_and_a_result_is_none_either() -> None:
    given = rewards(Calculator(), played(TASK, CALL, RESULT, reason=Reason.MAX_TURNS))
    assert given.total == 0.0
    assert given.metrics == {"answered": 0.0, "calls": 1.0, "results": 1.0, "result_right": 1.0}
    with_text = Message(role=Role.ASSISTANT, content="84", tool_calls=CALL.tool_calls)
    assert rewards(Calculator(), played(TASK, with_text)).total == 0.0


def test_a_rollout_without_a_reply_scores_nothing() -> None:
    assert rewards(Calculator(), played(TASK, reason=Reason.CONTEXT_OVERFLOW)).total == 0.0


def test_a_truncated_rollout_that_is_right_scores_one() -> None:
    assert rewards(Calculator(), played(TASK, "It is 84", reason=Reason.GENERATION_LIMIT)).total == 1.0


def test_failed_calls_are_no_results() -> None:
    failed = Message(role=Role.TOOL, content="error: 84", call_id="c", name="calculator", fault=Fault.POLICY)
    metrics = rewards(Calculator(), played(TASK, CALL, failed, "84")).metrics
    assert (metrics["results"], metrics["result_right"], metrics["answered"]) == (0.0, 0.0, 1.0)


def test_worked_examples_before_the_task_are_nobodys_results() -> None:
    example = Message(role=Role.TOOL, content="84", call_id="example_0", name="calculator")
    metrics = rewards(Calculator(), played(TASK, example, "84")).metrics
    assert (metrics["results"], metrics["result_right"]) == (0.0, 0.0)
