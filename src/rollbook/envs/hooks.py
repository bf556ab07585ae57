"""What an environment overrides, seen before it runs: `tasks` and `solutions` are plain functions, everything else is
async, and `score` is either: a plain one reads nothing but the trace, so it runs in a thread and holds nobody up.

Rule: only a function that is written down as the wrong kind is refused. One that wraps another is judged by the
innermost one, and what is no function (a partial, an object that can be called) is left to the call.
"""

from __future__ import annotations

import inspect
from types import FunctionType, MethodType

from rollbook.envs.protocol import Environment

__all__ = ["is_plain", "wrong_hooks"]

EITHER = ("score",)
PLAIN = ("tasks", "solutions")
ASYNC = ("setup", "step", "final_state", "score", "score_group", "cleanup")


def wrong_hooks(kind: type[Environment]) -> list[str]:
    """One line, with the remedy, for each method that cannot be called as it is written."""
    found: list[str] = []
    for name in (*PLAIN, *ASYNC):
        written = next(vars(owner)[name] for owner in kind.__mro__ if name in vars(owner))
        function = inspect.unwrap(written) if isinstance(written, FunctionType) else None
        if name in EITHER or not isinstance(function, FunctionType):
            continue
        if inspect.iscoroutinefunction(function) is (name in ASYNC):
            continue
        code = function.__code__
        right = f"async def {name}" if name in ASYNC else f"def {name}"
        found.append(f"write '{right}' for {function.__qualname__} ({code.co_filename}:{code.co_firstlineno})")
    return found


def is_plain(method: object) -> bool:
    """True for a method that is written down as a plain function."""
    function = inspect.unwrap(method.__func__) if isinstance(method, MethodType) else None
    return isinstance(function, FunctionType) and not inspect.iscoroutinefunction(function)
