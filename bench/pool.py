"""The pool: what a second worker brings where tools burn CPU, and ten thousand rollouts in flight in one process.

Two workers are measured by the time between the first rollout that ended and the last, so that starting them is not
counted; the engine is a script. Those in flight have an engine over HTTP, the fake one in a process of its own, that
answers each request after half a minute. Their starts are spread over most of that, as those of a long run would be, so
all are in flight before the first reply comes; they run in a process of their own, whose memory is then theirs.
"""

from __future__ import annotations

import asyncio
import json
import resource
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from bench.effort import Effort
from bench.rows import At, Of, Peer, Row, Target
from rollbook.envs import Environment, StepResult
from rollbook.policy.testing import Latency
from rollbook.render import ChatRenderer
from rollbook.rewards import Outcome
from rollbook.rollout import Limits
from rollbook.rollout.snapshot import Snapshot
from rollbook.run import RunConfig, policy_of, read_resources, run
from rollbook.run.access import Access
from rollbook.run.recording import Silent
from rollbook.trace import EndingKind, Message, Task, Trace

__all__ = ["Burning", "Short", "measure_pool"]

BURN = 0.005
"""CPU seconds of the environment in each turn."""
TURNS = 4
GROUP = 8
AT_ONCE = 16
"""Rollouts at once with one worker and with two."""
MODEL = "local:smollm2-135m"
"""Whose tokenizer it is."""


class Burning(Environment):
    """Burns CPU in each of some turns."""

    def __init__(self) -> None:
        self.left = TURNS

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"burn-{index}", prompt="Go.") for index in range(count)]

    async def step(self, reply: Message) -> StepResult | None:
        end = time.thread_time() + BURN
        while time.thread_time() < end:
            pass
        self.left -= 1
        return StepResult("On.") if self.left else None

    async def score(self, trace: Trace) -> float:
        return 1.0


class Short(Environment):
    """Two turns, so that all are in flight when the first have their second."""

    def __init__(self) -> None:
        self.left = 2

    def tasks(self, count: int, seed: int = 0) -> Sequence[Task]:
        return [Task(id=f"short-{index}", prompt=f"Say {index}.") for index in range(count)]

    async def step(self, reply: Message) -> StepResult | None:
        self.left -= 1
        return StepResult("On.") if self.left else None

    async def score(self, trace: Trace) -> float:
        return 1.0


@dataclass
class Ends(Silent):
    """When rollouts ended, how many did so well, and what there was at most of all, seen twice a second."""

    times: list[float] = field(default_factory=list[float])
    well: int = 0
    peak: int = 0
    """Rollouts in flight."""
    memory: int = 0
    """Bytes."""

    def snapshot(self, snapshot: Snapshot) -> None:
        self.peak = max(self.peak, snapshot.in_flight)
        self.memory = max(self.memory, _memory())

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        del late
        self.times.append(time.monotonic())
        self.well += outcome.reason.kind is not EndingKind.ERROR

    @property
    def rate(self) -> float:
        """Rollouts a second between the first and the last."""
        return (len(self.times) - 1) / (self.times[-1] - self.times[0])


class Flown(msgspec.Struct):
    """What the process with all those rollouts tells."""

    well: int
    peak: int
    """Rollouts at once."""
    lag: float
    """Seconds, the 99th percentile."""
    before: int
    """Bytes of memory when nothing ran yet, the model's tokenizer included; and the most while they ran."""
    after: int


def measure_pool(renderer: ChatRenderer, scratch: Path, cache: Path | None, effort: Effort) -> list[Row]:
    """All rows of the pool."""
    scratch.mkdir(parents=True, exist_ok=True)
    return [_workers(renderer, scratch, cache, effort), *_flight(renderer, scratch, cache, effort)]


def _workers(renderer: ChatRenderer, scratch: Path, cache: Path | None, effort: Effort) -> Row:
    stop = min(renderer.info.stop_ids)
    ids = [*renderer.encode("All right, on with it.").tolist(), stop]
    file = scratch / "script.json"
    file.write_text(json.dumps({"replies": [{"type": "reply", "token_ids": ids, "logprobs": [-0.5] * len(ids)}]}))
    rates: dict[int, list[float]] = {1: [], 2: []}
    for number in range(effort.pool_repeats):
        for workers, found in rates.items():
            found.append(_rate(file, scratch / f"run-{number}-{workers}", workers, cache, effort))
    return Row(
        name=f"rollouts with {1e3 * BURN:.0f} ms CPU per turn, two workers",
        value=max(rates[2]),
        unit="1/s",
        how=f"maximum of {effort.pool_repeats} runs of {effort.pool_rollouts} rollouts of {TURNS} turns",
        target=Target(limit=1.6, at=At.LEAST, of=Of.RATIO),
        peer=Peer("one worker", max(rates[1])),
    )


def _rate(script: Path, folder: Path, workers: int, cache: Path | None, effort: Effort) -> float:
    config = RunConfig(
        environment="bench.pool:Burning",
        policy=f"scripted:{script}",
        tasks=effort.pool_rollouts // GROUP,
        group=GROUP,
    )
    ends = Ends()
    asyncio.run(
        run(
            config,
            folder,
            workers=workers,
            concurrency=AT_ONCE,
            start_jitter=0.0,
            access=Access(cache=cache),
            progress=ends,
        )
    )
    return ends.rate


def _flight(renderer: ChatRenderer, scratch: Path, cache: Path | None, effort: Effort) -> list[Row]:
    at_once, seconds = effort.flight, effort.flight_seconds
    quick = {"": 0.0, "check": 0.0, **{f"check-{number}": 0.0 for number in range(20)}}
    latency = msgspec.json.encode(Latency(prefill=seconds, sessions=quick)).decode()
    stops = [word for each in sorted(renderer.info.stop_ids) for word in ("--stop-id", str(each))]
    command = [sys.executable, "-m", "rollbook.policy.testing", "--dialect", "vllm", "--latency", latency, *stops]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        try:
            url = engine.stdout.readline().strip()
            words = [
                sys.executable,
                "-m",
                "bench.pool",
                str(scratch / "flight"),
                url,
                str(at_once),
                str(seconds),
                str(cache or ""),
            ]
            done = subprocess.run(words, stdout=subprocess.PIPE, check=True)
        finally:
            engine.terminate()
    flown = msgspec.json.decode(done.stdout, type=Flown)
    name, how = f"{at_once:,} rollouts in flight", f"one run, an engine that takes {seconds:g} s"
    each = (flown.after - flown.before) / at_once
    return [
        Row(name=f"{name}, ended well", value=flown.well, unit="", how=how, target=_least(at_once)),
        Row(name=f"{name}, at once", value=flown.peak, unit="", how=how, target=_least(at_once)),
        Row(name=f"{name}, lag of the loop", value=1e3 * flown.lag, unit="ms", how=f"99th percentile of {how}",
            target=Target(limit=100)),
        Row(name=f"{name}, memory of each", value=each / 1024, unit="KiB", how=f"most of {how}"),
    ]  # fmt: skip


def _least(number: int) -> Target:
    return Target(limit=number, at=At.LEAST)


def fly(folder: str, url: str, at_once: str, seconds: str, cache: str) -> Flown:
    """So many rollouts at once, in this process; their starts are spread over most of so many seconds."""
    config = RunConfig(
        environment="bench.pool:Short",
        policy=f"vllm:{url}",
        tokenizer=MODEL,
        tasks=int(at_once) // GROUP,
        group=GROUP,
        limits=Limits(max_generation=16, max_turns=2),
    )
    place = Path(cache) if cache else None
    loaded = policy_of(config, Access(connections=int(at_once), cache=place))
    ends, before = Ends(), _memory()
    asyncio.run(
        run(config, folder, concurrency=int(at_once), start_jitter=0.8 * float(seconds), policy=loaded, progress=ends)
    )
    report = read_resources(Path(folder))
    assert report is not None
    return Flown(well=ends.well, peak=ends.peak, lag=report.lag.quantile(0.99) or 0.0, before=before, after=ends.memory)


def _memory() -> int:
    """Bytes in use."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(fly(*sys.argv[1:])))
