"""An event loop that waits for nothing: where nothing can run, its clock jumps to the next timer.

For what waits long by rule. Its clock moves by jumps alone, and nothing outside of the loop (a thread, a process) may
be waited for in it.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["run_skipping"]

Value = TypeVar("Value")


class _Selector(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise AssertionError("it would wait for ever")
        self.now += 0.0 if ready else max(timeout or 0.0, 0.0)
        return ready


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _Selector()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_skipping(work: Coroutine[Any, Any, Value]) -> Value:
    """As `asyncio.run`, in no time."""
    with asyncio.Runner(loop_factory=_Loop) as runner:
        return runner.run(work)
