"""What every side does alike: read the work, run it in batches, count its CPU, say what it did.

Runs in the environment of whoever is measured, so it imports nothing but the standard library. CPU is of the whole
process with all its threads and of the children that it waited for. The first batch is not counted: imports,
connections, caches and thread pools are there afterwards.
"""

import asyncio
import gc
import importlib.metadata
import json
import platform
import resource
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Work:
    """One setting; the same file goes to every side."""

    url: str
    """The engine."""
    tokenizer: str
    """A folder as ``transformers`` reads it."""
    scratch: str
    """A folder for what a side stores."""
    prompt: str
    results: list[str]
    """What the tool gives back, one after the other."""
    turns: int
    """Requests of each rollout; each reply is one tool call."""
    at_once: int
    """Rollouts in flight, which is a batch."""
    repeats: int
    """Batches that are counted."""


@dataclass
class Done:
    """What rollouts came to, added up."""

    turns: int = 0
    """Requests that were answered."""
    tool_calls: int = 0
    """That were executed."""
    sampled: int = 0
    """Tokens."""
    prompts: int = 0
    """Tokens of all prompts; 0: the side does not tell."""

    def add(self, turns: int, tool_calls: int, sampled: int, prompts: int) -> None:
        """One more rollout."""
        self.turns += turns
        self.tool_calls += tool_calls
        self.sampled += sampled
        self.prompts += prompts


def read_work() -> Work:
    """The file that the command line names."""
    return Work(**json.loads(Path(sys.argv[1]).read_text()))


def cpu_seconds() -> float:
    """Of this process and of the children that it waited for, user and system."""
    used = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(each.ru_utime + each.ru_stime for each in used)


async def measure(work: Work, one: Callable[[int, Done], Awaitable[None]]) -> dict[str, Any]:
    """Run `one` rollout after another; it adds what it did to its `Done`."""
    number, costs, done = 0, list[float](), Done()
    for batch in range(work.repeats + 1):
        done = Done()
        gc.collect()
        began = cpu_seconds()
        await asyncio.gather(*(one(number + each, done) for each in range(work.at_once)))
        number += work.at_once
        expected = work.at_once * work.turns
        if done.turns != expected:
            raise RuntimeError(f"{done.turns} turns where {expected} were asked for")
        if batch:
            costs.append((cpu_seconds() - began) / done.turns)
    return {"cpu_seconds": costs, "batch": asdict(done)}


def report(found: dict[str, Any], packages: Sequence[str]) -> None:
    """Print it, with what it ran on, as the last line."""
    kept = {
        **found,
        "rss_mb": _most_memory(),
        "versions": {
            "python": platform.python_version(),
            **{each: importlib.metadata.version(each) for each in packages},
        },
    }
    sys.stdout.write("\n" + json.dumps(kept) + "\n")


def _most_memory() -> float | None:
    """The most resident memory so far; None where the system does not tell. `getrusage` counts what the process was
    forked from."""
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.exists() else []
    found = [int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")]
    return round(found[0], 1) if found else None
