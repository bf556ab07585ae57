"""`check_env`: proves what the rest of Rollbook takes for granted about an environment.

The checks, in this order: tasks are given, the same seed gives the same, more begin with the fewer, ids are unique, a
task survives JSON; methods are async or not as they must be; tools have valid schemas and names of their own; `setup`
gives a first observation, `score` bears a rollout that never got to reply, `cleanup` runs; and where the environment
knows solutions of its tasks, the gold one scores 1 and the no-op 0, replayed through its tools and its scorer.
Nothing is sampled.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import cast

import jsonschema
import msgspec

from rollbook.envs.foreign import ForeignError, call_foreign, one_line
from rollbook.envs.hooks import wrong_hooks
from rollbook.envs.protocol import Environment
from rollbook.envs.scorer import call_scorer
from rollbook.envs.solutions import Solutions
from rollbook.envs.toolset import ToolSet
from rollbook.errors import RollbookError, boundary
from rollbook.rollout.pool.orders import EnvFactory
from rollbook.rollout.replay import replay
from rollbook.trace.disposition import ending_of
from rollbook.trace.ending import Ending, Reason
from rollbook.trace.message import Message, Role
from rollbook.trace.record import TraceHead
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace

__all__ = ["EnvCheck", "EnvFinding", "EnvReport", "check_env", "env_report"]

SAME_REWARD = 1e-9
"""Rewards that differ by less are the same: a sum of weighted parts has float error."""
CALL_SECONDS = 60.0
"""How long one call of the environment may take here."""


class EnvCheck(StrEnum):
    """What was checked."""

    TASKS = "tasks"
    """`tasks` gives as many as were asked for, with ids of their own, as plain JSON data."""
    SEED = "seed"
    """The same seed gives the same tasks."""
    PREFIX = "prefix"
    """More tasks begin with the fewer."""
    METHODS = "methods"
    """What must be async is, and `tasks` is not; `score` may be either."""
    TOOLS = "tools"
    """Tools can be offered."""
    SETUP = "setup"
    """`setup` gives a first observation."""
    SCORE = "score"
    """`score` can judge a rollout that ended before its first reply."""
    CLEANUP = "cleanup"
    """`cleanup` runs."""
    SOLUTIONS = "solutions"
    """`solutions` gives `Solutions` that can be replayed."""
    GOLD = "gold"
    """The gold solution scores 1."""
    NOOP = "noop"
    """The solution that does nothing scores 0."""


class EnvFinding(msgspec.Struct, frozen=True):
    """One thing that is not as it must be."""

    check: EnvCheck
    problem: str


class EnvReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a check came to."""

    findings: tuple[EnvFinding, ...]
    """None: it conforms."""
    tasks: int
    """Tasks that were looked at."""
    solved: int
    """Tasks whose solutions were replayed; 0: the environment knows none, so its scorer was not held to anything."""


async def check_env(make: EnvFactory, count: int = 8, seed: int = 0, *, solved: int | None = None) -> list[EnvFinding]:
    """Check the environment that `make` makes (a class will do) on `count` tasks. No findings: it conforms.

    `solved`: of how many tasks the solutions are replayed; None: of all.
    """
    return list((await env_report(make, count, seed, solved=solved)).findings)


async def env_report(make: EnvFactory, count: int = 8, seed: int = 0, *, solved: int | None = None) -> EnvReport:
    """As `check_env`, with how much was tried."""
    checker = _Checker(make)
    tasks = checker.tasks(count, seed)
    checker.methods()
    checker.tools()
    if tasks:
        await checker.life(tasks[0])
    replayed = 0
    if not checker.findings:  # what is broken already would only be told again
        for task in tasks[:solved]:
            replayed += await checker.solutions(task)
    return EnvReport(findings=tuple(checker.findings), tasks=len(tasks), solved=replayed)


class _Checker:
    def __init__(self, make: EnvFactory) -> None:
        self.make = make
        self.findings: list[EnvFinding] = []

    def found(self, check: EnvCheck, problem: str) -> None:
        self.findings.append(EnvFinding(check, problem))

    @contextmanager
    def guard(self, check: EnvCheck) -> Generator[None]:
        try:
            with boundary(check, ForeignError):
                yield
        except RollbookError as error:
            self.found(check, str(error))

    def tasks(self, count: int, seed: int) -> Sequence[Task]:
        tasks: Sequence[Task] = ()
        with self.guard(EnvCheck.TASKS):
            tasks = list(self.make().tasks(count, seed))
            self._rows(tasks, count)
            again = list(self.make().tasks(count, seed))
            if again != tasks:
                self.found(EnvCheck.SEED, f"seed {seed} gave other tasks the second time")
            fewer = list(self.make().tasks(max(1, count // 2), seed))
            if fewer != again[: len(fewer)]:
                self.found(EnvCheck.PREFIX, f"{count} tasks do not begin with the first {len(fewer)}")
        return tasks

    def _rows(self, tasks: Sequence[Task], count: int) -> None:
        if len(tasks) != count:
            self.found(EnvCheck.TASKS, f"{count} tasks were asked for, {len(tasks)} came")
        ids = [task.id for task in tasks]
        double = sorted({each for each in ids if ids.count(each) > 1})
        if double:
            self.found(EnvCheck.TASKS, f"ids are not unique: {', '.join(double[:3])}")
        for task in tasks:
            if msgspec.json.decode(msgspec.json.encode(task), type=Task) != task:
                self.found(EnvCheck.TASKS, f"task {task.id} does not survive JSON; use lists, dicts, text and numbers")

    def methods(self) -> None:
        with self.guard(EnvCheck.METHODS):
            for problem in wrong_hooks(type(self.make())):
                self.found(EnvCheck.METHODS, problem)

    def tools(self) -> None:
        with self.guard(EnvCheck.TOOLS):
            for spec in ToolSet.of(self.make()).specs:
                jsonschema.Draft202012Validator.check_schema(spec.parameters)
                if not spec.description:
                    self.found(EnvCheck.TOOLS, f"tool {spec.name!r} has no docstring, so no description")

    async def life(self, task: Task) -> None:
        with self.guard(EnvCheck.SETUP):
            environment = self.make()
            try:
                await self._act(environment, task)
            finally:
                with self.guard(EnvCheck.CLEANUP):
                    await call_foreign(CALL_SECONDS, environment.cleanup)

    async def _act(self, environment: Environment, task: Task) -> None:
        first = await call_foreign(CALL_SECONDS, environment.setup, task)
        if not first or first[-1].role is Role.ASSISTANT:
            self.found(EnvCheck.SETUP, "the first observation is empty, or ends with an assistant's message")
        trace = Trace(TraceHead(rollout="check", group="check", task=task, policies=()))
        trace.end(Ending(Reason.MAX_TOKENS, "before the first reply"))
        with self.guard(EnvCheck.SCORE):
            await call_foreign(CALL_SECONDS, call_scorer, environment, trace)

    async def solutions(self, task: Task) -> bool:
        """Replay the solutions of one task; False where none is known."""
        found: object = None
        with self.guard(EnvCheck.SOLUTIONS):
            found = cast("object", self.make().solutions(copy.deepcopy(task)))
        if found is None:
            return False
        if not isinstance(found, Solutions):
            self.found(EnvCheck.SOLUTIONS, f"task {task.id}: a {type(found).__name__}; give Solutions(gold, noop)")
            return False
        await self._replay(EnvCheck.GOLD, task, found.gold, 1.0)
        await self._replay(EnvCheck.NOOP, task, found.noop, 0.0)
        return True

    async def _replay(self, check: EnvCheck, task: Task, replies: Sequence[Message], reward: float) -> None:
        with self.guard(EnvCheck.SOLUTIONS):
            trace = await replay(self.make, task, list(replies))
            if trace.reward is None or not math.isclose(trace.reward, reward, abs_tol=SAME_REWARD):
                self.found(check, f"task {task.id}: {_scored(trace)}, not {reward:g}; it ended {_ended(trace)}")


def _scored(trace: Trace) -> str:
    if trace.reward is not None:
        return f"scored {trace.reward:g}"
    scoring = trace.tail.scoring
    return f"scored nothing ({scoring.status}{': ' + scoring.reason if scoring.reason else ''})"


def _ended(trace: Trace) -> str:
    """As what, and behind which refused call: mostly that is why."""
    ending = ending_of(trace)
    bad = [message.content for message in trace.graph.messages if message.fault is not None]
    words = [f"as {ending}", *([ending.detail] if ending.detail else []), *bad[:1]]
    return one_line(": ".join(words))
