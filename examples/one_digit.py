"""An environment for a small model that has never been asked for one digit: a sum, with a graded reward.

Train on it with `rollbook train examples.one_digit:OneDigit --policy local:smollm2-135m --lr 1e-5 --max-turns 1
--max-generation 16 --tasks 4`. A reward of all or nothing would be 0 for every first rollout, and nothing could be
learned from it; so each step on the way there counts.
"""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Sequence
from typing import ClassVar

from rollbook import (
    Environment,
    LoadedPolicy,
    Rewards,
    ScriptedPolicy,
    Task,
    Trace,
    load_renderer,
    rollout,
)
from rollbook.policy import ScriptedReply
from rollbook.trace import Message, Reason, Role


class OneDigit(Environment):
    """Sums up to 9. Reward: 0.2 for a reply that begins with a digit, 0.2 for one that ends, 0.3 for one digit alone,
    0.3 for the right one."""

    name: ClassVar[str] = "one-digit"

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        rng = random.Random(seed)  # noqa: S311 (tasks, not secrets)
        return [self._task(index, rng.randint(0, 9), rng.random()) for index in range(count)]

    def _task(self, index: int, first: int, share: float) -> Task:
        second = int(share * (10 - first))
        return Task(id=f"sum-{index}", prompt=f"What is {first}+{second}?", target=str(first + second))

    async def setup(self, task: Task) -> Sequence[Message]:
        return [Message(role=Role.SYSTEM, content="You answer with one digit only."), *task.messages()]

    async def score(self, trace: Trace) -> Rewards:
        said = trace.text.strip()
        ended = trace.ending is not None and trace.ending.reason is Reason.FINAL_ANSWER
        alone = ended and re.fullmatch(r"\d", said) is not None
        parts = {
            "digit": 0.2 * bool(re.match(r"\d", said)),
            "ends": 0.2 * ended,
            "alone": 0.3 * alone,
            "right": 0.3 * (alone and said == trace.task.target),
        }
        return Rewards(sum(parts.values()), parts=parts)


def main() -> None:
    """Score two replies without a model."""
    renderer = load_renderer("local:smollm2-135m")
    (task,) = OneDigit().tasks(1)
    for text in (str(task.target), "The sum of both is"):
        ids = [*renderer.encode(text).tolist(), 2]  # 2: <|im_end|>
        policy = ScriptedPolicy([ScriptedReply(token_ids=ids, logprobs=[-1.0] * len(ids))])
        trace = asyncio.run(rollout(OneDigit, task, LoadedPolicy(policy, renderer)))
        print(repr(text), trace.reward)


if __name__ == "__main__":
    main()
