"""A function that the policy wrote, tried on hidden tests in a sandbox (`rollbook.rewards.code_tests`)."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from rollbook.envs.protocol import Rewards
from rollbook.envs.sandbox import SandboxLimits, sandbox
from rollbook.rewards.code_tests import interpreter, run_hidden_tests
from rollbook.rewards.scorers.scorer import ScoringFailed
from rollbook.trace.trace import Trace

__all__ = ["MAX_CODE", "HiddenTests", "code_passes"]

MAX_CODE = 100_000
"""Characters of an answer that is looked at; a longer one passes nothing."""

HiddenTests = Callable[[Trace], tuple[str, Sequence[Sequence[Any]]]]
"""Of a trace's task: the function's name, and its tests as pairs of arguments and what is right."""


def code_passes(
    code: Callable[[Trace], str | None],
    tests: HiddenTests,
    *,
    graded: bool = False,
    kind: str | None = None,
    limits: SandboxLimits | None = None,
) -> Callable[[Trace], Awaitable[Rewards]]:
    """A scorer: 1 where the code passes every hidden test, else 0; `graded`: the share of them that it passes.

    `code`: reads the answer out of a trace, None where there is none, which passes nothing. `kind`, `limits`: of the
    sandbox. Raises `ScoringFailed` for a task without tests, `RolloutFailure` where the host failed.
    """
    bounds = limits or SandboxLimits()

    async def score(trace: Trace, /) -> Rewards:
        written, (name, hidden) = code(trace), tests(trace)
        if not hidden:
            raise ScoringFailed(f"task {trace.task.id} has no hidden tests")
        metrics = {"answered": float(written is not None), "tests": float(len(hidden))}
        if written is None or len(written) > MAX_CODE:
            return Rewards(0.0, parts={"passed": 0.0}, metrics=metrics)
        async with sandbox(kind, limits=bounds, readonly=interpreter()[1]) as box:
            result = await run_hidden_tests(box, written, name, hidden, bounds)
        share = result.passed / len(hidden)
        metrics |= {"run": float(result.run), "out_of_time": float(result.out_of_time)}
        return Rewards(share if graded else float(share == 1.0), parts={"passed": share}, metrics=metrics)

    return score
