"""CPU per turn over HTTP, beside a bare client that makes the same requests.

The engine is the fake one in a process of its own, which answers at once from prepared bytes: its time is not counted,
and what is left is the layer and the client. A turn is a whole one: rendering, limits, the request with all its ids,
reading the reply, parsing, commit and durable store, its tool call. The bare client is `aiohttp` as anyone writes it
(``json=`` and ``.json()``) with the bodies that the rollouts sent, on as many connections; its second row knows its
bodies as bytes and does not read what comes back, and nothing that speaks HTTP in this language is faster.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import numpy as np

from bench.corpus import Corpus
from bench.effort import Effort
from bench.rows import Of, Peer, Row, Target
from bench.turns import OBSERVED, Shell, make_replies
from rollbook.policy.http import EngineAddress
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.vllm import VllmPolicy
from rollbook.policy.vllm_wire import Asked, Route, request_body
from rollbook.render import ChatRenderer
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings, head_for, run_rollout
from rollbook.store import RunWriter
from rollbook.trace import LogprobKind, Sampling, Task

__all__ = ["IN_FLIGHT", "measure_http"]

IN_FLIGHT = (1, 64, 1024)
"""Rollouts that run at once."""
DIFFERENT = 100
"""Different replies and results."""
FEW = 8
"""Fewer rollouts at once than these are repeated more often."""
LEAST = 200
"""Requests of the bare client."""
ROUTE = "/inference/v1/generate"


class Listening(VllmPolicy):
    """Keeps what was asked, for the bare client."""

    def __init__(self, config: RemoteConfig) -> None:
        super().__init__(config)
        self.asked: list[tuple[TokenIds, Sampling]] = []

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        self.asked.append((prompt, sampling))
        return await super().sample(prompt, sampling, session=session)


@dataclass
class Costs:
    """CPU seconds of one request, one for each try."""

    turn: list[float] = field(default_factory=list[float])
    bare: list[float] = field(default_factory=list[float])
    floor: list[float] = field(default_factory=list[float])
    tokens: float = 0.0
    """Of a prompt, on the mean."""


@contextmanager
def instant_engine(renderer: ChatRenderer, corpus: Corpus, folder: Path) -> Generator[str]:
    """The URL of a fake vLLM in a process of its own that answers with tool calls."""
    replies = make_replies(renderer, corpus, np.random.default_rng(5), DIFFERENT)
    file = folder / "replies.json"
    plain = [{"token_ids": each.token_ids.tolist(), "logprobs": each.logprobs.tolist()} for each in replies]
    file.write_text(json.dumps({"replies": plain}))
    command = [sys.executable, "-m", "bench.prepared", str(file), "--dialect", "vllm"]
    command += ["--context-length", "1000000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


class Rollouts:
    """Rollouts over HTTP, some of them at once."""

    def __init__(self, renderer: ChatRenderer, corpus: Corpus, url: str, writer: RunWriter) -> None:
        rng = np.random.default_rng(6)
        self._results = [corpus.cut(rng, OBSERVED)[1] for _ in range(DIFFERENT)]
        config = RemoteConfig(name="bench", address=EngineAddress(url=url), stop_ids=renderer.info.stop_ids)
        self._policy = Listening(config)
        self._loaded = LoadedPolicy(self._policy, renderer)
        self._url, self._writer = url, writer
        self._number = 0

    async def run(self, at_once: int, turns: int, repeats: int) -> Costs:
        """The rollouts and the same requests from the bare client, one after the other, `repeats` times."""
        costs = Costs()
        async with self._loaded:
            await self._measured(1, 2)
            for _ in range(repeats):
                self._policy.asked.clear()
                costs.turn.append(await self._measured(at_once, turns))
                costs.tokens = sum(len(prompt) for prompt, _ in self._policy.asked) / len(self._policy.asked)
                bodies = _bodies(self._policy.asked, at_once)
                costs.bare.append(await _posted(self._url, bodies, at_once, plain=True))
                costs.floor.append(await _posted(self._url, bodies, at_once, plain=False))
        return costs

    async def _measured(self, at_once: int, turns: int) -> float:
        """CPU seconds of one turn."""
        gc.collect()
        began = time.process_time()
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(self._rollout(turns))
        return (time.process_time() - began) / (at_once * turns)

    async def _rollout(self, turns: int) -> None:
        self._number += 1
        settings = RolloutSettings(limits=Limits(max_turns=turns, max_generation=2048))
        env = Shell(self._results, self._number)
        head = head_for(env, Task(id="t", prompt="Find the bug."), self._loaded, group=f"{id(self):x}-{self._number}")
        trace = await run_rollout(env, head, self._loaded, settings, seed=self._number, sink=self._writer)
        if failed := [call.error for call in trace.calls if call.error]:
            raise RuntimeError(f"{len(failed)} requests failed: {failed[0]}")
        if len(trace.calls) != turns:
            raise RuntimeError(f"the rollout stopped after {len(trace.calls)} requests: {trace.ending}")


def _bodies(asked: Sequence[tuple[TokenIds, Sampling]], at_once: int) -> list[dict[str, Any]]:
    """Some of the requests that were made, evenly over all: enough for two on each connection."""
    step = max(1, len(asked) // max(2 * at_once, LEAST))
    return [_body(prompt, sampling) for prompt, sampling in asked[::step]]


def _body(prompt: TokenIds, sampling: Sampling) -> dict[str, Any]:
    asked = Asked(
        prompt=prompt, wire=b"[]", sampling=sampling, limit=2048, stop_ids=frozenset({2}), kind=LogprobKind.RAW
    )
    return {**request_body(asked, "fake", Route.GENERATE), "token_ids": prompt.tolist()}


async def _posted(url: str, bodies: Sequence[dict[str, Any]], at_once: int, *, plain: bool) -> float:
    """CPU seconds of one POST. `plain`: JSON is written and read as aiohttp does it; else bytes go out and come in."""
    encoded = [msgspec.json.encode(body) for body in bodies]
    waiting = iter(range(len(bodies)))
    headers = {"Content-Type": "application/json"}
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=at_once)) as session:

        async def work() -> None:
            for number in waiting:
                if plain:
                    async with session.post(url + ROUTE, json=bodies[number]) as reply:
                        await reply.json()
                else:
                    async with session.post(url + ROUTE, data=encoded[number], headers=headers) as reply:
                        await reply.read()

        async def all_of_it() -> None:
            async with asyncio.TaskGroup() as group:
                for _ in range(at_once):
                    group.create_task(work())

        gc.collect()
        began = time.process_time()
        await all_of_it()
        return (time.process_time() - began) / len(bodies)


def measure_http(renderer: ChatRenderer, corpus: Corpus, folder: Path, effort: Effort) -> list[Row]:
    """CPU per turn beside the bare client, for each number in flight."""
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    with RunWriter.create(folder / "run") as writer, instant_engine(renderer, corpus, folder) as url:
        for at_once in dict.fromkeys(min(each, effort.http_most) for each in IN_FLIGHT):
            rollouts = Rollouts(renderer, corpus, url, writer)
            repeats = effort.http_repeats * max(1, FEW // at_once)
            costs = asyncio.run(rollouts.run(at_once, effort.http_turns, repeats))
            rows += _rows(at_once, costs, effort, repeats)
    return rows


def _rows(at_once: int, costs: Costs, effort: Effort, repeats: int) -> list[Row]:
    turn, bare, floor = (1e3 * min(each) for each in (costs.turn, costs.bare, costs.floor))
    how = f"minimum of {repeats}, {effort.http_turns} turns each, prompts of {costs.tokens:.0f} tokens on the mean"
    return [
        Row(
            name=f"CPU per turn over HTTP, {at_once} in flight",
            value=turn,
            unit="ms",
            how=how,
            target=Target(limit=3.0, of=Of.RATIO),
            peer=Peer("bare aiohttp client, json= and .json()", bare),
        ),
        Row(
            name=f"the bare client, {at_once} in flight",
            value=bare,
            unit="ms",
            how=how,
            peer=Peer("bytes out, bytes in", floor),
        ),
    ]
