"""CPU per turn of long rollouts, from the real rollout layer into a real run folder.

A turn is measured from one request to the next: commit and durable store of the reply, its tool call, rendering of
the result, limits, and the request with the whole prompt. The policy is scripted and answers at once, so what is
left is the layer. One rollout at a time, so every moment of the process belongs to one turn. A run has turns of
other rollouts between those of one; here a short rollout before each measured one stands for them, or the first turns
would be charged for the caches that sealing the last rollout or the bare client left behind.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from statistics import median

import aiohttp
import numpy as np

from bench.client import instant_server, post_many
from bench.clock import least
from bench.corpus import Corpus
from bench.effort import Effort
from bench.rows import Of, Peer, Row, Target
from rollbook.envs import Environment, tool
from rollbook.policy import ScriptedPolicy
from rollbook.policy.protocol import Completion, TokenIds
from rollbook.render import ChatRenderer
from rollbook.rollout import Limits, LoadedPolicy, RolloutSettings, head_for, run_rollout
from rollbook.store import RunWriter
from rollbook.trace import Finish, LogprobKind, Sampling, Task, Trace

__all__ = ["TURNS", "WINDOWS", "measure_turns"]

TURNS = 400
WARM_TURNS = 20
WINDOWS = {4: (2, 6), 50: (48, 52), 200: (198, 202), 400: (396, 400)}
"""Turn -> the first and last turn of the window around it, of which the mean is taken; turns count from 1."""
SAMPLED, OBSERVED = 170, 220
"""Tokens of a reply and of a tool result: the shape of 20 turns with 8.2k tokens."""
DIFFERENT = 500
"""Different replies and results. A rollout of 400 turns repeats none, and each starts at another one, so that all
windows meet all texts."""


class Shell(Environment):
    """One tool that gives source text back at once."""

    def __init__(self, results: list[str], first: int) -> None:
        self._results, self._next = results, first

    @tool
    async def read(self, path: str, line: int = 1) -> str:
        """Read a file from a line on.

        path: the file's path.
        line: the first line to read.
        """
        del path, line
        self._next += 1
        return self._results[self._next % len(self._results)]


class Script:
    """Answers with a tool call of about `SAMPLED` tokens and notes the CPU time of each request."""

    def __init__(self, replies: list[Completion]) -> None:
        self._replies = replies
        self.first = 0
        """The reply that a rollout starts with."""
        self.marks: list[float] = []

    def __call__(self, prompt: TokenIds, sampling: Sampling, session: str) -> Completion:
        del prompt, sampling, session
        self.marks.append(time.process_time())
        return self._replies[(self.first + len(self.marks)) % len(self._replies)]


def make_replies(renderer: ChatRenderer, corpus: Corpus, rng: np.random.Generator, count: int) -> list[Completion]:
    """Replies as a model would sample them: some text, one tool call, the end of the turn."""
    found: list[Completion] = []
    closing = renderer.facts.close
    end = np.array(
        [each for each in renderer.info.stop_ids if renderer.decode(np.array([each], np.int32)) == closing], np.int32
    )
    for number in range(count):
        call = json.dumps({"name": "read", "arguments": {"path": f"lib/module_{number}.py", "line": number}})
        tail = renderer.encode(f"\n<tool_call>\n{call}\n</tool_call>")
        ids = np.concatenate((corpus.cut(rng, SAMPLED - len(tail) - 1)[0], tail, end))
        found.append(
            Completion(
                token_ids=ids,
                logprobs=-rng.exponential(1.0, len(ids)).astype(np.float32),
                logprob_kind=LogprobKind.RAW,
                finish=Finish.STOP,
                engine_finish="stop",
                versions=((0, len(ids)),),
            )
        )
    return found


class LongRollouts:
    """Runs rollouts of `TURNS` turns one after the other and keeps what their turns cost."""

    def __init__(self, renderer: ChatRenderer, corpus: Corpus, writer: RunWriter) -> None:
        self._rng = rng = np.random.default_rng(1)
        self._script = Script(make_replies(renderer, corpus, rng, DIFFERENT))
        self._results = [corpus.cut(rng, OBSERVED)[1] for _ in range(DIFFERENT)]
        self._loaded = LoadedPolicy(ScriptedPolicy(self._script), renderer)
        self._writer = writer
        self.costs: dict[int, list[float]] = {turn: [] for turn in WINDOWS}
        """Turn -> CPU seconds a turn, one for each rollout."""
        self.tokens_per_turn = 0.0

    async def run(self, number: int) -> None:
        """One more rollout, behind a short one that is not measured."""
        await self._rollout(f"warm{number}", WARM_TURNS)
        trace = await self._rollout(f"long{number}", TURNS)
        marks = self._script.marks
        for turn, (first, last) in WINDOWS.items():
            self.costs[turn].append((marks[last] - marks[first - 1]) / (last - first + 1))
        self.tokens_per_turn = len(trace.graph.tokens) / TURNS

    async def _rollout(self, name: str, turns: int) -> Trace:
        """One rollout; the request behind its last turn is made as well, for it ends that turn."""
        settings = RolloutSettings(limits=Limits(max_turns=turns + 1, max_generation=2048))
        self._script.marks.clear()
        self._script.first = first = int(self._rng.integers(DIFFERENT))
        env = Shell(self._results, first)
        head = head_for(env, Task(id="t", prompt="Find the bug."), self._loaded, group=name)
        trace = await run_rollout(env, head, self._loaded, settings, seed=first, sink=self._writer)
        if len(self._script.marks) != turns + 1:
            raise RuntimeError(f"the rollout stopped after {len(self._script.marks)} requests: {trace.ending}")
        return trace


async def _run(rollouts: LongRollouts, url: str, effort: Effort) -> list[float]:
    """Rollouts and plain requests in turns; returns the CPU seconds of a request, one for each rollout."""
    posts: list[float] = []
    async with aiohttp.ClientSession() as session:
        await post_many(session, url, effort.posts)
        for number in range(effort.long_rollouts):
            await rollouts.run(number)
            posts.append(await post_many(session, url, effort.posts))
    return posts


def measure_turns(renderer: ChatRenderer, corpus: Corpus, folder: Path, effort: Effort) -> list[Row]:
    """CPU per turn at the turns of `WINDOWS`, beside the bare client."""
    with RunWriter.create(folder) as writer, instant_server() as url:
        rollouts = LongRollouts(renderer, corpus, writer)
        posts = asyncio.run(_run(rollouts, url, effort))
    cost = {turn: 1e3 * median(costs) for turn, costs in rollouts.costs.items()}
    post = Peer("bare aiohttp POST", 1e3 * median(posts))
    how = f"median of {effort.long_rollouts} rollouts of {TURNS} turns, {rollouts.tokens_per_turn:.0f} tokens a turn"
    rows = [
        Row(
            name=f"CPU per turn, turn {turn}", value=cost[turn], unit="ms", how=how, target=Target(limit=1.0), peer=post
        )
        for turn in WINDOWS
    ]
    flat = Row(
        name="CPU per turn, turn 400 beside turn 4",
        value=cost[400],
        unit="ms",
        how=how,
        target=Target(limit=1.3, of=Of.RATIO),
        peer=Peer("turn 4", cost[4]),
    )
    return [*rows, flat, _tokenizer(renderer, corpus, effort)]


def _tokenizer(renderer: ChatRenderer, corpus: Corpus, effort: Effort) -> Row:
    """What the tokenizer itself takes of each turn: encoding one result."""
    rng = np.random.default_rng(2)
    texts = [corpus.cut(rng, OBSERVED)[1] for _ in range(DIFFERENT)]
    (spent,) = least(effort.repeats, lambda: list(map(renderer.encode, texts)))
    how = f"minimum of {effort.repeats} passes over {DIFFERENT} results"
    return Row(name=f"the tokenizer alone, {OBSERVED} tokens", value=1e3 * spent / DIFFERENT, unit="ms", how=how)
