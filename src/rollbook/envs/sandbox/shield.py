"""Finishing what must be finished: a cancellation waits, and is passed on afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["to_the_end"]

Value = TypeVar("Value")


async def to_the_end(work: Coroutine[Any, Any, Value]) -> Value:
    """Await `work` to its end, whoever cancels the caller meanwhile."""
    task, cancelled = asyncio.create_task(work), None
    while not task.done():
        try:
            await asyncio.wait((task,))
        except asyncio.CancelledError as error:
            cancelled = error
    value = task.result()
    if cancelled is not None:
        raise cancelled
    return value
