"""Arithmetic with a calculator tool: one operation a task, answered in words that end with the result.

Scoring reads the final answer alone: the last number in the policy's last message must be the result, exactly. A
message that calls a tool is no answer.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from fractions import Fraction
from typing import ClassVar

from rollbook.envs.outcome import ToolRefused
from rollbook.envs.protocol import Environment, Rewards
from rollbook.envs.solutions import Solutions, calls, says
from rollbook.envs.tool import tool
from rollbook.errors import UsageError
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace
from rollbook.worlds.answers import last_number
from rollbook.worlds.arithmetic import BadExpression, evaluate, show

__all__ = ["Calculator"]

_LEVELS: dict[int, tuple[int, int, str]] = {1: (1, 9, "+-*"), 2: (10, 99, "+-*"), 3: (100, 999, "+-*")}
"""Difficulty: smallest and largest operand, and the operations."""


class Calculator(Environment):
    """`difficulty` 1, 2 or 3: operands of so many digits."""

    name: ClassVar[str] = "calculator"

    def __init__(self, difficulty: int = 2) -> None:
        if difficulty not in _LEVELS:
            raise UsageError(f"calculator: difficulty is 1, 2 or 3, not {difficulty}")
        self.difficulty = difficulty

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [self._task(index, seed) for index in range(count)]

    def _task(self, index: int, seed: int) -> Task:
        rng = random.Random(f"calculator {self.difficulty} {seed} {index}")  # noqa: S311 (tasks, not secrets)
        low, high, operators = _LEVELS[self.difficulty]
        expression = f"{rng.randint(low, high)}{rng.choice(operators)}{rng.randint(low, high)}"
        return Task(
            id=f"calculator-{self.difficulty}-{seed}-{index}",
            prompt=f"Compute {expression}",
            target=show(evaluate(expression)),
            data={"expression": expression, "difficulty": self.difficulty},
        )

    @tool(timeout=5.0)
    async def calculator(self, expression: str) -> str:
        """Evaluates an arithmetic expression.

        Args:
            expression: numbers, + - * / // % ** and brackets, e.g. 12*7
        """
        try:
            return show(evaluate(expression))
        except BadExpression as error:
            raise ToolRefused(str(error)) from error

    def solutions(self, task: Task) -> Solutions:
        return Solutions((calls("calculator", expression=task.data["expression"]), says(f"It is {task.target}.")))

    async def score(self, trace: Trace) -> Rewards:
        target = Fraction(trace.task.target)
        answer = trace.answer
        said = last_number(answer.content) if answer is not None and not answer.tool_calls else None
        asked = {call.id for turn in trace.turns() for call in turn.message.tool_calls}
        results = [each for each in trace.graph.messages if each.call_id in asked and each.fault is None]
        metrics = {
            "answered": float(said is not None),
            "calls": float(len(asked)),
            "results": float(len(results)),
            "result_right": float(any(last_number(each.content) == target for each in results)),
        }
        return Rewards(float(said == target), metrics=metrics)
