"""Short conversations: every second task takes two turns, every second member is right; some tasks may have a sandbox.

A sandbox is open as long as its rollout, so a killed worker leaves some, and it is plain, so that it works anywhere.
"""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

from rollbook.envs import Environment, StepResult
from rollbook.envs.sandbox import NotIsolated, Sandbox, open_sandbox
from rollbook.trace import Message, Task, Trace

__all__ = ["NAME", "Storm", "turns_of"]

warnings.filterwarnings("ignore", category=NotIsolated)
SANDBOXED = 20
"""Every so many tasks one has a sandbox."""

NAME = "tests.storm.world:Storm"


def turns_of(task: str) -> int:
    """How many turns a task takes."""
    return 1 + int(task.rpartition("-")[2]) % 2


class Storm(Environment):
    """Answers the first turn of a task with two; `right` scores 1. `sandboxes`: some tasks have one."""

    def __init__(self, sandboxes: bool = False) -> None:
        self.sandboxes = sandboxes
        self.left = 0
        self.box: Sandbox | None = None

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"storm-{seed}-{index}", prompt=f"Say {index}.") for index in range(count)]

    async def setup(self, task: Task) -> Sequence[Message]:
        self.left = turns_of(task.id)
        if self.sandboxes and int(task.id.rpartition("-")[2]) % SANDBOXED == 0:
            self.box = await open_sandbox("plain", folder=Path(tempfile.gettempdir()) / "sandboxes")
            await self.box.exec(["sh", "-c", "echo here > file"])
        return task.messages()

    async def cleanup(self) -> None:
        if self.box is not None:
            await self.box.close()

    async def step(self, reply: Message) -> StepResult | None:
        self.left -= 1
        return StepResult("Say it again.") if self.left else None

    async def score(self, trace: Trace) -> float:
        return float("right" in trace.text)
