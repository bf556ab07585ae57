"""The yardstick of a turn: one POST with a small JSON body by a bare aiohttp client to an instant local server."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import aiohttp

__all__ = ["instant_server", "post_many"]

ROOT = Path(__file__).parents[1]
REQUEST = {"model": "policy", "max_tokens": 512, "temperature": 1.0, "prompt": "Find the bug."}


@contextmanager
def instant_server() -> Generator[str]:
    """The address of a server in a process of its own."""
    command = [sys.executable, "-m", "bench.instant"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}/"
        finally:
            process.terminate()


async def post_many(session: aiohttp.ClientSession, url: str, count: int) -> float:
    """CPU seconds of one POST, over `count` one after the other."""
    began = time.process_time()
    for _ in range(count):
        async with session.post(url, json=REQUEST) as response:
            await response.json()
    return (time.process_time() - began) / count
