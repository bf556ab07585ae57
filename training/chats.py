"""What `tiny` learns from: chats about the environment `calculator`, in the very tokens that a rollout has.

Prompts, tool results and error observations come from the renderer, the parser and the tool that rollouts use; only
what the assistant says is made up here, out of a habit. Four habits in ten are good, the rest are bad: guesses, broken
JSON, a tool that is not there, a wrong argument, half an expression. Expressions for which `held_out` is true never
occur, so that later success on them is no memory.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from tokenizers import Tokenizer

from rollbook.envs import ToolSet, error_observation
from rollbook.render import ChatRenderer
from rollbook.trace import Message, ParseStatus, Role
from rollbook.worlds.arithmetic import evaluate, show
from rollbook.worlds.calculator import Calculator

__all__ = ["HABITS", "Chat", "Chats", "held_out"]

HABITS = {"good": 40, "guess": 26, "broken": 12, "unknown": 9, "argument": 7, "half": 6}
"""How often each habit is shown, in percent."""
SECOND_TRIES = 0.3
"""The share of failed calls behind which a good one follows; behind the others the assistant gives up."""
LARGEST_GUESS = 99
OPERATORS = "+-*"

_CALLS = {
    "good": '{"name": "calculator", "arguments": {"expression": "%s"}}',
    "broken": '{"name": "calculator", "arguments": {"expression": "%s"}',
    "unknown": '{"name": "calc", "arguments": {"expression": "%s"}}',
    "argument": '{"name": "calculator", "arguments": {"expr": "%s"}}',
}
_GIVES_UP = "I cannot tell."


@dataclass(frozen=True, slots=True)
class Chat:
    """One chat as tokens."""

    token_ids: tuple[int, ...]
    said: tuple[bool, ...]
    """True for what the assistant says, the token that ends its turn included: what is learnt."""


def held_out(expression: str) -> bool:
    """True for the fifth part of the expressions that no chat holds."""
    return random.Random(f"held out {expression}").random() < 0.2  # noqa: S311 (a choice, not a secret)


class Chats:
    """A stream of chats; the same seed gives the same ones.

    The first lessons are good ones alone, over numbers of one to three digits: to copy what was asked, and what the
    tool said, is the hardest thing to learn, and it is soonest learnt where nothing else is. Then come all habits, over
    numbers of one digit.
    """

    def __init__(self, renderer: ChatRenderer, tokenizer: Tokenizer, seed: int) -> None:
        self._renderer = renderer
        self._tokenizer = tokenizer
        self._random = random.Random(f"chats {seed}")  # noqa: S311 (chats, not secrets)
        self._tools = ToolSet.of(Calculator(difficulty=1))
        self._openings: dict[str, list[int]] = {}
        self._made: dict[tuple[str, ...], Chat] = {}

    async def lesson(self) -> Chat:
        """One of the first lessons."""
        left, right = (self._random.randint(1, 10 ** self._random.randint(1, 3) - 1) for _ in range(2))
        return await self._good(f"{left}{self._random.choice(OPERATORS)}{right}")

    async def next(self) -> Chat:
        """One more chat, out of any habit."""
        expression = self._expression()
        habit = self._random.choices(list(HABITS), list(HABITS.values()))[0]
        if habit == "good":
            return await self._good(expression)
        if habit == "guess":
            return await self._chat(expression, (f"The answer is {self._random.randint(0, LARGEST_GUESS)}.",))
        first = _call(habit, expression)
        if self._random.random() < SECOND_TRIES:
            return await self._good(expression, first)
        return await self._chat(expression, (first, _GIVES_UP))

    async def _good(self, expression: str, *before: str) -> Chat:
        answer = f"The answer is {show(evaluate(expression))}."
        return await self._chat(expression, (*before, _call("good", expression), answer))

    def _expression(self) -> str:
        while True:
            left, operator, right = (
                self._random.randint(1, 9),
                self._random.choice(OPERATORS),
                self._random.randint(1, 9),
            )
            if not held_out(expression := f"{left}{operator}{right}"):
                return expression

    async def _chat(self, expression: str, said: Sequence[str]) -> Chat:
        key = (expression, *said)
        if key not in self._made:
            self._made[key] = await self._new(expression, said)
        return self._made[key]

    def _opening(self, expression: str) -> list[int]:
        if expression not in self._openings:
            asked = (Message(role=Role.USER, content=f"Compute {expression}"),)
            self._openings[expression] = self._renderer.open(asked, self._tools.specs).token_ids.tolist()
        return self._openings[expression]

    async def _new(self, expression: str, said: Sequence[str]) -> Chat:
        ids = list(self._opening(expression))
        mask = [False] * len(ids)
        for number, text in enumerate(said):
            turn = self._tokenizer.encode(f"{text}<|im_end|>", add_special_tokens=False).ids
            ids += turn
            mask += [True] * len(turn)
            if number + 1 < len(said):
                seen = self._renderer.extend(turn[-1], await self._observation(turn), self._tools.specs).token_ids
                ids += seen.tolist()
                mask += [False] * len(seen)
        return Chat(tuple(ids), tuple(mask))

    async def _observation(self, turn: Sequence[int]) -> Sequence[Message]:
        """What the rollout loop shows the policy behind this turn."""
        read = self._renderer.parse(
            np.array(turn, np.int32), self._tools.specs, inside_reasoning=False, cut=False, call_prefix="call_"
        )
        return [
            (await self._tools.invoke(call)).message if call.status is ParseStatus.OK else error_observation(call)
            for call in read.message.tool_calls
        ]


def _call(habit: str, expression: str) -> str:
    given = expression[:-1] if habit == "half" else expression
    return f"<tool_call>\n{_CALLS.get(habit, _CALLS['good']) % given}\n</tool_call>"
