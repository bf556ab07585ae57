"""The other side of `rollbook.rewards.scorers.math_equal`: one comparison, in a process that does nothing else.

The only module that imports math-verify. Its own limits of time are off, for they are wall time; here processor time
is bounded, by a timer of the process.
"""

from __future__ import annotations

import logging
import signal
from types import FrameType
from typing import Any, cast

import math_verify  # pyright: ignore[reportMissingTypeStubs] (it has none; likewise below)

from rollbook.rewards.scorers.scorer import ScoringFailed

__all__ = ["compare"]


class _OutOfTime(BaseException):
    """Passes whatever a library catches on its way."""


def compare(right: str, said: str, seconds: float) -> tuple[bool, bool]:
    """Whether the answer is equal to what is right, and whether it ran out of processor time. Raises `ScoringFailed`
    where what is right is no mathematics."""
    logging.getLogger("math_verify").setLevel(logging.ERROR)  # it warns at each call that its own timers are off
    target = _read(right)
    if not target:
        raise ScoringFailed(f"the target is not readable as mathematics: {right[:80]!r}")
    before = signal.signal(signal.SIGPROF, _stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        found = _read(said)
        return bool(found) and _equal(target, found), False
    except _OutOfTime:
        return False, True
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0.0)
        signal.signal(signal.SIGPROF, before)


def _stop(number: int, frame: FrameType | None) -> None:
    del number, frame
    raise _OutOfTime


def _read(text: str) -> list[Any]:
    return cast("list[Any]", math_verify.parse(text, parsing_timeout=0))


def _equal(right: list[Any], said: list[Any]) -> bool:
    return bool(math_verify.verify(right, said, timeout_seconds=0))
