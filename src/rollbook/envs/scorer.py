"""Calling an environment's scorer, which is an async function or a plain one. A plain one runs in a thread."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from typing import cast

from rollbook.envs.hooks import is_plain
from rollbook.envs.offloop import off_loop
from rollbook.envs.protocol import Environment
from rollbook.trace.trace import Trace

__all__ = ["call_scorer"]


async def call_scorer(env: Environment, trace: Trace) -> object:
    """What the scorer gives, unchecked."""
    if not is_plain(env.score):
        return await env.score(trace)
    given = await off_loop(cast("Callable[[Trace], object]", env.score), trace)
    return await cast("Awaitable[object]", given) if inspect.isawaitable(given) else given
