"""Running a solution against hidden tests, so that it can't know what is right.

Rules: each test is a process of its own in a fresh sandbox; it is given the code, the name of the function and the
arguments of this test, and nothing else; what it returned leaves the sandbox as one canonical JSON text, and only here
is that compared, byte by byte, with what is right. So a solution that prints, exits, or changes what Python has built
in can spoil its own result and do no more. What it returns must be what JSON knows, with the same types. After a test
that ran out of time, or when the time for all is used up, no further one is run. All failures are the solution's; a
lost host raises.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from rollbook.envs.sandbox import Cause, ExecResult, Sandbox

__all__ = ["Verdict", "interpreter", "judge_solution"]

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
class Verdict:
    """What the tests said."""

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


async def judge_solution(
    box: Sandbox, code: str, name: str, tests: Sequence[Sequence[Any]], *, seconds: float, in_all: float
) -> Verdict:
    """Run `tests` (pairs of arguments and what is right), each for at most `seconds`, all for `in_all`. Raises
    `RolloutFailure` where the host failed."""
    python, _ = interpreter()
    passed, first, used = 0, None, 0.0
    for place, (arguments, right) in enumerate(tests):
        given = json.dumps({"code": code, "name": name, "arguments": arguments}).encode()
        done = await box.exec([python, "-I", "-S", "-c", RUNNER], stdin=given, seconds=seconds)
        if done.ok and not done.stdout_lost and done.stdout == _canonical(right):
            passed += 1
        elif first is None:
            first = f"{name}({', '.join(map(repr, arguments))}): {_why(done)}"
        used += done.seconds
        if done.cause in (Cause.TIME, Cause.CPU) or used > in_all:
            return Verdict(passed, place + 1, place + 1 < len(tests) or not done.ok, first)
    return Verdict(passed, len(tests), False, first)


def _canonical(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, allow_nan=False).encode()


def _why(done: ExecResult) -> str:
    if not done.ok:
        said = done.stderr.decode(errors="replace").strip().splitlines()
        return f"{done.describe()}{': ' + said[-1] if said else ''}"
    return "a wrong result"
