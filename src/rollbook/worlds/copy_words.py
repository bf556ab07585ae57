"""Repeating a few words: one turn, no tools, a graded reward.

The reward is the share of the words that stand in their place, of all that were asked or said, whichever is more;
case and punctuation do not count. Two worked examples stand before the task, as turns: a small model copies from
turns and not from a description.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import ClassVar

from rollbook.envs.protocol import Environment, Rewards
from rollbook.envs.solutions import Solutions, says
from rollbook.errors import UsageError
from rollbook.trace.message import Message, Role
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["CopyWords"]

_WORDS = tuple(
    """
    apple bread bridge castle chair cloud coffee engine flower forest garden glass hammer island jacket kettle ladder
    lemon letter market mirror morning needle ocean orange paper piano pillow planet river rocket silver spoon stone
    summer table tiger train violin window winter yellow
    """.split()  # noqa: SIM905 (a list of 42 quoted words reads worse)
)
_EXAMPLES = ("red cat dog sun moon tree", "blue house bird road lamp wall")
MAX_WORDS = 6


class CopyWords(Environment):
    """`words`: how many words a task has, 1 to 6."""

    name: ClassVar[str] = "copy"

    def __init__(self, words: int = 3) -> None:
        if not 1 <= words <= MAX_WORDS:
            raise UsageError(f"copy: words is 1 to {MAX_WORDS}, not {words}")
        self.words = words

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [self._task(index, seed) for index in range(count)]

    def _task(self, index: int, seed: int) -> Task:
        rng = random.Random(f"copy {self.words} {seed} {index}")  # noqa: S311 (tasks, not secrets)
        text = " ".join(rng.sample(_WORDS, self.words))
        return Task(id=f"copy-{self.words}-{seed}-{index}", prompt=text, target=text)

    async def setup(self, task: Task) -> Sequence[Message]:
        shown = [Message(role=Role.SYSTEM, content="Repeat the words.")]
        for example in _EXAMPLES:
            text = " ".join(example.split()[: self.words])
            shown += [Message(role=Role.USER, content=text), Message(role=Role.ASSISTANT, content=text)]
        return [*shown, *task.messages()]

    def solutions(self, task: Task) -> Solutions:
        return Solutions((says(str(task.target)),))

    async def score(self, trace: Trace) -> Rewards:
        asked = _words(str(trace.task.target))
        said = _words(trace.text)
        right = sum(a == b for a, b in zip(asked, said, strict=False))
        share = right / max(len(asked), len(said))
        return Rewards(share, metrics={"exact": float(said == asked), "words_said": float(len(said))})


def _words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())
