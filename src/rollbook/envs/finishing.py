"""Work that must come to its end although whoever awaits it is cancelled: scoring, clean-up, the end of a process."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

__all__ = ["to_its_end"]

Value = TypeVar("Value")


async def to_its_end(work: Coroutine[Any, Any, Value]) -> Value:
    """Await `work` to its end; a cancellation that comes meanwhile is passed on afterwards."""
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
