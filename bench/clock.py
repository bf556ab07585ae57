"""CPU time of a piece of work, system time included; waiting and other programs are not in it."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable

__all__ = ["cpu_of", "least"]


def cpu_of(work: Callable[[], object]) -> float:
    """CPU seconds of one call; what it returns is freed outside."""
    began = time.process_time()
    kept = work()
    spent = time.process_time() - began
    del kept
    return spent


def least(repeats: int, *works: Callable[[], object]) -> list[float]:
    """The minimum CPU seconds of each work, taken in turns so that a busy moment meets all of them alike."""
    tries: list[list[float]] = [[] for _ in works]
    for _ in range(repeats):
        for times, work in zip(tries, works, strict=True):
            gc.collect()
            times.append(cpu_of(work))
    return [min(times) for times in tries]
