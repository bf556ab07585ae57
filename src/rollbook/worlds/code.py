"""Writing a Python function, tried out in a sandbox and scored by hidden tests.

The prompt gives the signature, what is to be returned and examples. The answer is what was handed in with `submit`, or
else the last fenced code block of the final answer. Scoring runs it in a sandbox of its own, on the tests of the task's
target, which neither the prompt nor the sandbox of `run_python` ever shows (`rollbook.rewards.code_tests`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from rollbook.envs.outcome import ToolRefused
from rollbook.envs.protocol import Environment, Rewards
from rollbook.envs.sandbox import Cause, ExecResult, Kind, Sandbox, SandboxLimits, open_sandbox
from rollbook.envs.solutions import Solutions, calls
from rollbook.envs.tool import tool
from rollbook.errors import UsageError
from rollbook.rewards.code_tests import interpreter
from rollbook.rewards.scorers.code import code_passes
from rollbook.trace.message import Message, ParseStatus
from rollbook.trace.record import FinalState
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace
from rollbook.worlds.code_easy import EASY
from rollbook.worlds.code_families import Drawn, Family, draw
from rollbook.worlds.code_hard import HARD
from rollbook.worlds.code_middle import MIDDLE

__all__ = ["FAMILIES", "Code"]

FAMILIES: dict[int, tuple[Family, ...]] = {1: EASY, 2: MIDDLE, 3: HARD}
"""By difficulty."""
LIMITS = SandboxLimits(memory=256 << 20, disk=32 << 20, output=64 << 10, flood=16 << 20, cpu=10, processes=32)
RUN_SECONDS = 40.0
"""Wall time of a program that is tried out, for one that sleeps; less than the tool has. What computes is bounded by
``LIMITS.cpu``, so that a machine with other work does not end it."""

_BLOCK = re.compile(
    r"^```[ \t]*(?:python|py|python3)?[ \t]*\n(.*?)^```[ \t]*$", re.MULTILINE | re.DOTALL | re.IGNORECASE
)


class Code(Environment):
    """`difficulty` 1, 2 or 3. `graded`: the reward is the share of hidden tests that pass; otherwise it is 1 where all
    do. `kind`: of the sandbox; None takes the best that isolates here."""

    name: ClassVar[str] = "code"

    def __init__(self, difficulty: int = 1, graded: bool = False, kind: str | None = None) -> None:
        if difficulty not in FAMILIES:
            raise UsageError(f"code: difficulty is 1, 2 or 3, not {difficulty}")
        if kind is not None and kind not in list(Kind):
            raise UsageError(f"code: kind is {', '.join(Kind)}, not {kind}")
        self.difficulty = difficulty
        self.graded = graded
        self.kind = kind
        self._box: Sandbox | None = None

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [self._task(index, seed) for index in range(count)]

    def _task(self, index: int, seed: int) -> Task:
        rng = random.Random(f"code {self.difficulty} {seed} {index}")  # noqa: S311 (tasks, not secrets)
        families = FAMILIES[self.difficulty]
        order = random.Random(f"code {self.difficulty} {seed}").sample(families, len(families))  # noqa: S311
        return task_of(draw(order[index % len(order)], rng), f"code-{self.difficulty}-{seed}-{index}", self.difficulty)

    async def setup(self, task: Task) -> Sequence[Message]:
        self._box = await open_sandbox(self.kind, limits=LIMITS, readonly=interpreter()[1])
        return task.messages()

    @tool(timeout=60.0)
    async def run_python(self, code: str) -> bytes:
        """Runs a Python program in the sandbox and shows what it prints. Files stay for the next run.

        Args:
            code: the whole program
        """
        if self._box is None:
            raise ToolRefused("there is no sandbox before the task is set up")
        python, _ = interpreter()
        done = await self._box.exec([python, "-"], stdin=code.encode(errors="surrogatepass"), seconds=RUN_SECONDS)
        if done.cause is not Cause.EXITED:
            raise ToolRefused(f"the program ended early: {done.describe()}")
        return _shown(done)

    @tool(stop=True)
    async def submit(self, code: str) -> str:
        """Hands in the solution; nothing can be done afterwards.

        Args:
            code: the function, with all that it needs
        """
        return "submitted" if code.strip() else "submitted nothing"

    async def final_state(self) -> FinalState | None:
        if self._box is None:
            return None
        info = self._box.info
        return FinalState(data={"sandbox": str(info.kind), "isolates": info.isolates, "groups": info.groups})

    def solutions(self, task: Task) -> Solutions:
        return Solutions((calls("run_python", code=task.data["gold"]), calls("submit", code=task.data["gold"])))

    async def score(self, trace: Trace) -> Rewards:
        return await code_passes(answer_of, _tests_of, graded=self.graded, kind=self.kind, limits=LIMITS)(trace)

    async def cleanup(self) -> None:
        if self._box is not None:
            await self._box.close()


def task_of(drawn: Drawn, name: str, difficulty: int) -> Task:
    """The task of a drawn function."""
    shown = "\n".join(f">>> {drawn.name}({', '.join(map(repr, given))})\n{right!r}" for given, right in drawn.examples)
    prompt = (
        f"Write a Python function that returns {drawn.text}.\n\n```python\n{drawn.signature}\n```\n\nExamples:\n\n"
        f"```\n{shown}\n```\n\nTry it with run_python if you like. Then hand it in with submit, or answer with the "
        "function in one ```python block."
    )
    target: dict[str, Any] = {"name": drawn.name, "tests": drawn.hidden}
    return Task(
        id=name,
        prompt=prompt,
        target=target,
        data={"family": drawn.name, "difficulty": difficulty, "gold": drawn.source},
    )


def answer_of(trace: Trace) -> str | None:
    """The code that was handed in; None where there is none."""
    done = {each.call_id for each in trace.graph.messages if each.name == "submit" and each.fault is None}
    for turn in reversed(trace.turns()):
        for call in reversed(turn.message.tool_calls):
            if call.status is ParseStatus.OK and call.id in done and call.arguments is not None:
                return str(call.arguments["code"])
    answer = trace.answer
    found = _BLOCK.findall(answer.content) if answer is not None and not answer.tool_calls else []
    return str(found[-1]) if found else None


def _tests_of(trace: Trace) -> tuple[str, list[list[Any]]]:
    target: dict[str, Any] = trace.task.target
    return target["name"], target["tests"]


def _shown(done: ExecResult) -> bytes:
    """What a program printed, as bytes, with its status and what is missing."""
    parts = [done.stdout]
    if done.stderr:
        parts += [b"" if done.stdout.endswith(b"\n") or not done.stdout else b"\n", done.stderr]
    if done.cut:
        parts.append(f"\n[{done.stdout_lost + done.stderr_lost} bytes more were printed]".encode())
    if not done.ok:
        parts.append(f"\n[{done.describe()}]".encode())
    return b"".join(parts) or b"(nothing was printed)"
