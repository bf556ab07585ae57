"""Running code that is not ours: one call, a limit of time, and one kind of error for whatever goes wrong.

Order of the rules: a `RolloutFailure` passes, also out of an exception group, for it ends the rollout; a cancellation
of the caller and Ctrl-C pass; everything else (an exception of any kind, a call of ``exit``, a result that came after
the limit, a cancellation that the code brought on itself) becomes a `ForeignError` with one line of bounded text.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar, cast

from rollbook.envs.protocol import Environment
from rollbook.errors import RollbookError, boundary
from rollbook.trace.ending import RolloutFailure

__all__ = ["ForeignError", "call_foreign", "clean_up", "one_line"]

MAX_LINE = 400
"""The most characters of an error text that a policy or a report sees."""

Given = ParamSpec("Given")
Value = TypeVar("Value")


class ForeignError(RollbookError):
    """Code that is not ours failed; the text says how, in one line."""


def one_line(text: str, limit: int = MAX_LINE) -> str:
    """`text` with its white space folded to single spaces; what is over `limit` characters is cut with a visible
    ``...``."""
    folded = " ".join(text.split())
    return folded if len(folded) <= limit else f"{folded[: limit - 3]}..."


async def call_foreign(
    seconds: float | None, function: Callable[Given, Awaitable[Value]], *args: Given.args, **options: Given.kwargs
) -> Value:
    """Call an async function and await it for at most `seconds` (None: no limit). Raises `ForeignError` or
    `RolloutFailure`.

    At the limit the code is cancelled and waited for. Code that swallows its cancellation holds the caller until it
    returns, and its late result does not count.
    """
    task = asyncio.current_task()
    timer = asyncio.timeout(seconds)
    late = f"did not return within {seconds:g} s" if seconds is not None else ""
    try:
        async with timer:
            with boundary("", ForeignError):
                value = await function(*args, **options)
    except TimeoutError:
        raise ForeignError(late) from None
    except asyncio.CancelledError:
        if task is None or task.cancelling():
            raise
        raise ForeignError("cancelled itself") from None
    except (RolloutFailure, KeyboardInterrupt, GeneratorExit):
        raise
    except RollbookError as error:
        raise _foreign(error) from error
    except BaseException as error:
        # a library's own kind of crash (a panic of compiled code is one) is still that library's
        raise ForeignError(one_line(f"{type(error).__name__}: {error}")) from error
    if timer.expired():
        raise ForeignError(late)
    return value


async def clean_up(env: Environment, seconds: float) -> None:
    """`cleanup` of an environment that only scored, where no trace can take a note of it: what goes wrong in it is
    lost, for it says nothing of a reward."""
    try:
        await call_foreign(seconds, env.cleanup)
    except RollbookError:
        return


def _foreign(error: RollbookError) -> RollbookError:
    if isinstance(error, ForeignError):
        failure = _failure_inside(error.__cause__)
        return failure if failure is not None else ForeignError(one_line(str(error).removeprefix(": ")))
    return ForeignError(one_line(f"{type(error).__name__}: {error}"))


def _failure_inside(cause: BaseException | None) -> RolloutFailure | None:
    if not isinstance(cause, BaseExceptionGroup):
        return None
    group = cast("BaseExceptionGroup[BaseException]", cause)
    for inner in group.exceptions:
        found = inner if isinstance(inner, RolloutFailure) else _failure_inside(inner)
        if found is not None:
            return found
    return None
