"""Running a solution against hidden tests, so that it can't know what is right.

Rules: each test is a process of its own in a fresh sandbox; it is given the code, the name of the function and the
arguments of this test, and nothing else; what it returned leaves the sandbox as one canonical JSON text, and only here
is that compared, byte by byte, with what is right. So a solution that prints, exits, or changes what Python has built
in can spoil its own result and do no more. What it returns must be what JSON knows, with the same types.

Time is processor time, so that a machine with other work does not fail a solution; wall time is bounded too, for one
that sleeps. After a test that ran out of either, or when the time for all is used up, no further one is run. Where wall
time ran out and a function that does nothing is slow as well, the machine is to blame, and that raises, as a lost host
does. All other failures are the solution's.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from rollbook.envs.sandbox import Cause, ExecResult, Sandbox, SandboxLimits
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["SolutionResult", "TimeBounds", "interpreter", "run_hidden_tests"]

SYSTEM = ("/usr/bin/python3", "/usr/local/bin/python3")
RUNNER = """\
import json, os, sys
def plain(value):
    kind = type(value)
    if kind is list:
        return [plain(each) for each in value]
    if kind is dict and all(type(key) is str for key in value):
        return {key: plain(each) for key, each in value.items()}
    if value is None or kind in (bool, int, float, str):
        return value
    raise TypeError(f"returned a {kind.__name__}")
dumps, write, leave = json.dumps, os.write, os._exit
given = json.load(sys.stdin)
out = os.dup(1)
os.dup2(2, 1)
space = {"__name__": "solution"}
exec(compile(given["code"], "solution.py", "exec"), space)
text = dumps(plain(space[given["name"]](*given["arguments"])), sort_keys=True, allow_nan=False)
sys.stdout.flush()
data = text.encode()
while data:
    data = data[write(out, data):]
leave(0)
"""


@dataclass(frozen=True, slots=True)
class TimeBounds:
    """What the tests of one solution may take, in seconds."""

    cpu: int = 3
    """Processor time of one test, Python's start included."""
    wall: float = 15.0
    cpu_in_all: float = 20.0
    wall_in_all: float = 35.0
    """Together with one more test less than a scorer has."""
    idle: float = 2.0
    """Wall time of a function that does nothing, over which the machine is too slow to tell; mostly it takes 0.05."""


TIME_BOUNDS = TimeBounds()


@dataclass(frozen=True, slots=True)
class SolutionResult:
    """What the hidden tests said of one solution."""

    passed: int
    run: int
    """Tests that were run; fewer than there are where one ran out of time."""
    out_of_time: bool
    first: str | None
    """Why the first one failed, for people; None: none did."""


def interpreter() -> tuple[str, tuple[str, ...]]:
    """A Python for inside, and the folders that it needs to see."""
    for place in SYSTEM:
        if os.access(place, os.X_OK) and os.path.realpath(place).startswith("/usr/"):
            return place, ()
    return os.path.realpath(sys.executable), (sys.base_prefix,)


async def run_hidden_tests(
    box: Sandbox,
    code: str,
    name: str,
    tests: Sequence[Sequence[Any]],
    limits: SandboxLimits,
    times: TimeBounds = TIME_BOUNDS,
) -> SolutionResult:
    """Run `tests` (pairs of arguments and what is right). `limits`: those of the sandbox. Raises `RolloutFailure` where
    the host failed, or was too slow to tell."""
    limits = msgspec.structs.replace(limits, cpu=times.cpu)
    passed, first, cpu, wall = 0, None, 0.0, 0.0
    for place, (arguments, right) in enumerate(tests):
        done = await _call(box, code, name, arguments, limits, times.wall)
        if done.ok and not done.stdout_lost and done.stdout == _canonical(right):
            passed += 1
        elif first is None:
            first = f"{name}({', '.join(map(repr, arguments))}): {_why(done)}"
        cpu, wall = cpu + done.cpu, wall + done.seconds
        if done.cause is Cause.TIME or wall > times.wall_in_all:
            await _check_machine(box, limits, times)
        if done.cause in (Cause.TIME, Cause.CPU) or cpu > times.cpu_in_all or wall > times.wall_in_all:
            return SolutionResult(passed, place + 1, place + 1 < len(tests) or not done.ok, first)
    return SolutionResult(passed, len(tests), False, first)


async def _call(
    box: Sandbox, code: str, name: str, arguments: Sequence[Any], limits: SandboxLimits, seconds: float
) -> ExecResult:
    given = json.dumps({"code": code, "name": name, "arguments": arguments}).encode()
    python, _ = interpreter()
    return await box.exec([python, "-I", "-S", "-c", RUNNER], stdin=given, seconds=seconds, limits=limits)


async def _check_machine(box: Sandbox, limits: SandboxLimits, times: TimeBounds) -> None:
    """Raises `RolloutFailure` where it is too slow to tell anything. Only time counts: that nothing runs any more in
    its sandbox may be the solution's doing."""
    done = await _call(box, "def nothing(): pass", "nothing", [], limits, times.wall)
    if done.seconds > times.idle:
        detail = f"a function that does nothing took {done.seconds:.1f} s: no solution can be judged"
        raise RolloutFailure(Reason.SANDBOX_LOST, detail)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _why(done: ExecResult) -> str:
    if not done.ok:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return f"{done.describe()}{': ' + said[-1] if said else ''}"
    return "a wrong result"
