"""An environment of one's own, from the first line to advantages, with scripted replies in place of a model.

With ``load_policy("local")`` in place of `scripted` the same runs on the real small model.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence

import numpy as np

from rollbook import (
    Ending,
    Environment,
    LoadedPolicy,
    Rewards,
    ScriptedPolicy,
    StepResult,
    Task,
    Trace,
    advantages,
    check_env,
    group,
    load_renderer,
    tool,
)
from rollbook.envs import ToolRefused
from rollbook.policy import Completion, TokenIds
from rollbook.trace import Finish, LogprobKind, Message, Reason, Sampling

END = 2  # <|im_end|> in the tokenizer of the default model


class Vault(Environment):
    """A lock with a number from 0 to 9; few tries."""

    def __init__(self, tries: int = 3) -> None:
        self.left = tries

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        rng = np.random.default_rng(seed)
        numbers = [int(rng.integers(10)) for _ in range(count)]
        return [
            Task(id=f"vault-{seed}-{index}", prompt="Open the lock: find its number, 0 to 9.", target=number)
            for index, number in enumerate(numbers)
        ]

    async def setup(self, task: Task) -> Sequence[Message]:
        self.number = task.target
        return task.messages()

    @tool(timeout=5.0)
    async def turn(self, number: int) -> StepResult:
        """Turns the dial.

        Args:
            number: 0 to 9
        """
        if not 0 <= number <= 9:
            raise ToolRefused(f"the dial has no {number}")
        self.left -= 1
        if number == self.number:
            return StepResult("open", reward=1.0, ending=Ending(Reason.GOAL_REACHED, f"opened by {number}"))
        if not self.left:
            return StepResult("jammed", ending=Ending(Reason.UNRECOVERABLE, "no tries left"))
        return StepResult("higher" if number < self.number else "lower")

    async def score(self, trace: Trace) -> Rewards:
        ending = trace.ending
        opened = ending is not None and ending.reason is Reason.GOAL_REACHED
        return Rewards(float(opened), parts={"open": float(opened)}, metrics={"turns": float(len(trace.turns()))})


def scripted() -> LoadedPolicy:
    """Each rollout turns the dial one further each turn, and begins where its own name says."""
    renderer = load_renderer("local")
    turns: dict[str, int] = {}

    def sample(prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
        number = int(session[-1]) + turns.setdefault(session, 0)
        turns[session] += 1
        call = json.dumps({"name": "turn", "arguments": {"number": number}})
        ids = np.append(renderer.encode(f"<tool_call>\n{call}\n</tool_call>"), END).astype(np.int32)
        return Completion(
            token_ids=ids,
            logprobs=np.full(len(ids), -0.5, np.float32),
            logprob_kind=LogprobKind.RAW,
            finish=Finish.STOP,
        )

    return LoadedPolicy(ScriptedPolicy(sample), renderer)


async def main() -> None:
    print("findings:", await check_env(Vault))
    task = Vault().tasks(1, seed=1)[0]
    async with scripted() as policy:
        traces = await group(Vault, task, policy, 6)
    found = advantages(traces)
    print(f"the number is {task.target}; {found.groups[0].used} of {found.groups[0].scheduled} vote")
    for trace in traces:
        print(trace.head.member, trace.ending, trace.reward, f"{found.values[trace.id]:+.3f}")


if __name__ == "__main__":
    asyncio.run(main())
