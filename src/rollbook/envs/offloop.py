"""Work that would hold the event loop up, done beside it: in a thread, or in a process of its own.

A thread (`off_loop`) is for what is short, waits, or gives Python's lock up while it works (numpy, hashing,
compression, a library that blocks). A process (`in_process`) is for Python code that computes: a scorer, the parsing
of HTML, megabytes of JSON. Rules: so many at once, the others wait; a cancelled caller is free at once. Its thread
goes on, for nothing can stop one, and its result is dropped; its process is killed. Processes end with their loop's
`close_processes`, and with the process that started them, however that ends.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import os
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import ParamSpec, TypeVar
from weakref import WeakKeyDictionary

from rollbook.envs.process_pool import ProcessPool
from rollbook.errors import UsageError

__all__ = ["THREADS", "close_processes", "compute", "cores", "in_process", "off_loop"]

THREADS = 64
"""Threads at once, for one event loop."""

Given = ParamSpec("Given")
Value = TypeVar("Value")

_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_computing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
_processes: WeakKeyDictionary[asyncio.AbstractEventLoop, ProcessPool] = WeakKeyDictionary()


def cores() -> int:
    """The machine's cores."""
    return os.cpu_count() or 1


async def off_loop(function: Callable[Given, Value], *args: Given.args, **options: Given.kwargs) -> Value:
    """Call a function in a thread and await what it returns or raises."""
    loop = asyncio.get_running_loop()
    free = _threads.setdefault(loop, asyncio.Semaphore(THREADS))
    await free.acquire()
    future: Future[Value] = Future()
    future.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(free.release))
    call = functools.partial(contextvars.copy_context().run, function, *args, **options)
    threading.Thread(target=_work, args=(future, call), name="off_loop", daemon=True).start()
    return await asyncio.wrap_future(future)


async def compute(function: Callable[Given, Value], *args: Given.args, **options: Given.kwargs) -> Value:
    """As `off_loop`, for what computes: no more threads at once than the machine has cores, for each further one makes
    the event loop wait longer for Python's lock."""
    loop = asyncio.get_running_loop()
    async with _computing.setdefault(loop, asyncio.Semaphore(cores())):
        return await off_loop(function, *args, **options)


def _work(future: Future[Value], call: Callable[[], Value]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        value = call()
    except BaseException as error:  # noqa: BLE001 (it is raised again where the result is awaited)
        future.set_exception(error)
    else:
        future.set_result(value)


async def in_process(function: Callable[Given, Value], *args: Given.args, **options: Given.kwargs) -> Value:
    """Call a function of a module in a process beside this one and await what it returns or raises.

    Function, arguments and result are pickled. As many processes as the machine has cores are started as they are
    needed, and serve one call after the other. Raises `UsageError` for what cannot be sent, `ProcessLost` where the
    process died over it.
    """
    if function.__module__ == "__main__":
        raise UsageError("a function of the main program is not known to another process; move it into a module")
    loop = asyncio.get_running_loop()
    if loop not in _processes:
        _processes[loop] = ProcessPool(cores())
    return await _processes[loop].call(functools.partial(function, *args, **options))


async def close_processes() -> None:
    """End the processes of this event loop."""
    found = _processes.pop(asyncio.get_running_loop(), None)
    if found is not None:
        found.close()
