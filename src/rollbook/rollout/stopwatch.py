"""The time split of one rollout: spans along its critical path that add up to its wall time.

A span that opens inside another one pauses it, so each moment belongs to one part; what no span covers is `other`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from enum import StrEnum
from time import perf_counter

from rollbook.trace import TimeSplit

__all__ = ["Part", "Stopwatch"]


class Part(StrEnum):
    """The parts of a rollout's wall time."""

    ENGINE = "engine"
    TOOL = "tool"
    SANDBOX = "sandbox"
    CPU = "cpu"
    SCORING = "scoring"
    CLEANUP = "cleanup"
    LIMITER = "limiter"
    OTHER = "other"


class Stopwatch:
    """Measures one rollout. Not for use by several tasks at once."""

    def __init__(self, clock: Callable[[], float] = perf_counter) -> None:
        self._clock = clock
        self._began = self._mark = clock()
        self._stack: list[Part] = [Part.OTHER]
        self.seconds: dict[Part, float] = dict.fromkeys(Part, 0.0)
        self.overlapped = 0.0
        """Seconds that ran beside the critical path."""
        self.engine_parts: dict[str, float] = {}
        """Seconds of queue, prefill and decode, as far as the engine reported them."""

    @contextmanager
    def span(self, part: Part) -> Generator[None]:
        """Everything inside belongs to `part`."""
        self._switch()
        self._stack.append(part)
        try:
            yield
        finally:
            self._switch()
            self._stack.pop()

    def turn_to(self, part: Part) -> None:
        """What is left of the innermost span belongs to `part`."""
        self._switch()
        self._stack[-1] = part

    def add_engine(self, **parts: float | None) -> None:
        """Enter what the engine reported of one call; None is left out, not counted as 0."""
        for name, seconds in parts.items():
            if seconds is not None:
                self.engine_parts[name] = self.engine_parts.get(name, 0.0) + seconds

    @property
    def part(self) -> Part:
        """The part that time goes to now."""
        return self._stack[-1]

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._clock() - self._began

    def split(self) -> TimeSplit:
        """The split so far."""
        self._switch()
        return TimeSplit(
            wall=self._mark - self._began,
            **{str(part): seconds for part, seconds in self.seconds.items()},
            engine_queue=self.engine_parts.get("queue"),
            engine_prefill=self.engine_parts.get("prefill"),
            engine_decode=self.engine_parts.get("decode"),
            overlapped=self.overlapped,
        )

    def _switch(self) -> None:
        now = self._clock()
        self.seconds[self._stack[-1]] += now - self._mark
        self._mark = now
