"""Guessing a number: many turns, no tools, step rewards, an ending that the environment sees.

Each reply must hold exactly one number; the answer is ``higher``, ``lower``, or the end (`goal_reached`). A guess that
narrows the range down earns a tenth of a point, no other reply earns a step reward. The whole rollout's reward is 1
where the number was found and 0 elsewhere, read from the messages alone. Two games stand before the task, as turns: a
small model replies with a number only after it has seen it done.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import ClassVar

from rollbook.envs.protocol import Environment, StepResult
from rollbook.envs.solutions import Solutions, says
from rollbook.errors import UsageError
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["Guess"]

NARROWER = 0.1
"""The step reward of a guess inside the range that is left."""


class Guess(Environment):
    """`high`: numbers go from 1 to this; `guesses`: how many replies there are before all is lost."""

    name: ClassVar[str] = "guess"

    def __init__(self, high: int = 8, guesses: int = 6) -> None:
        if high < 2 or guesses < 1:
            raise UsageError(f"guess: high is at least 2 and guesses at least 1, not {high} and {guesses}")
        self.high = high
        self.guesses = guesses
        self._secret = 0
        self._left = guesses
        self._range = (1, high)

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [self._task(index, seed) for index in range(count)]

    def _task(self, index: int, seed: int) -> Task:
        rng = random.Random(f"guess {self.high} {seed} {index}")  # noqa: S311 (tasks, not secrets)
        return Task(id=f"guess-{self.high}-{seed}-{index}", prompt=self._prompt, target=rng.randint(1, self.high))

    @property
    def _prompt(self) -> str:
        return f"Guess my number. It is between 1 and {self.high}."

    async def setup(self, task: Task) -> Sequence[Message]:
        self._secret = int(task.target)
        self._left = self.guesses
        self._range = (1, self.high)
        shown = [Message(role=Role.SYSTEM, content="Reply with one number.")]
        for first, hint, second in self._games():
            said = ((Role.USER, self._prompt), (Role.ASSISTANT, first), (Role.USER, hint), (Role.ASSISTANT, second))
            shown += [Message(role=role, content=str(text)) for role, text in said]
        return [*shown, *task.messages()]

    def _games(self) -> list[tuple[int, str, int]]:
        middle = (1 + self.high) // 2
        return [(middle, "higher", (middle + 1 + self.high) // 2), (middle, "lower", max(1, middle // 2))]

    async def step(self, reply: Message) -> StepResult:
        self._left -= 1
        guess = _number(reply.content)
        if guess == self._secret:
            return StepResult("right", 1.0, Ending(Reason.GOAL_REACHED, f"found {guess}"))
        if self._left == 0:
            return StepResult("no guesses left", None, Ending(Reason.UNRECOVERABLE, f"{self.guesses} guesses used"))
        if guess is None:
            return StepResult("Reply with one number.")
        low, high = self._range
        narrower = low <= guess <= high
        if narrower:
            self._range = (guess + 1, high) if guess < self._secret else (low, guess - 1)
        return StepResult("higher" if guess < self._secret else "lower", NARROWER if narrower else None)

    def solutions(self, task: Task) -> Solutions:
        return Solutions((says(str(task.target)),))

    async def score(self, trace: Trace) -> float:
        return float(any(_number(turn.message.content) == trace.task.target for turn in trace.turns()))


def _number(text: str) -> int | None:
    found = re.findall(r"(?<![\w.-])[0-9]{1,9}(?![\w]|\.[0-9])", text)
    return int(found[0]) if len(found) == 1 else None
