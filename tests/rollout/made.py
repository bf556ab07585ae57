"""Rollouts without a model: an engine that says what it is told to, over a small real tokenizer and template."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from rollbook.envs import Environment, StepResult
from rollbook.policy import Completion, PolicyInfo, TokenIds
from rollbook.rollout import Limits, LoadedPolicy, Resources, RolloutSettings, head_for, run_rollout
from rollbook.rollout.session import Agent, chat
from rollbook.rollout.staleness import TokenVersions
from rollbook.trace import (
    ContextPolicy,
    EndingRules,
    Finish,
    LogprobKind,
    MemorySink,
    Message,
    Reason,
    Sampling,
    Sink,
    Task,
    Trace,
)
from tests.render.families import Family, family

SMOLLM = family("smollm2-text")
TASK = Task(id="t", prompt="What is the sum of two and three?")


def ids_of(text: str, chosen: Family = SMOLLM, *, stop: bool = True) -> list[int]:
    """`text` as a model would sample it: markers by id where the tokenizer has them."""
    markers = [name for name in chosen.encoder.added if not name.startswith("<|")]
    parts = re.split(f"({'|'.join(map(re.escape, markers))})", text) if markers else [text]
    ids: list[int] = []
    for part in parts:
        ids += [chosen.encoder.added[part]] if part in markers else chosen.renderer.encode(part).tolist()
    return [*ids, chosen.stop] if stop else ids


def completion(ids: Sequence[int], finish: Finish = Finish.STOP, **more: Any) -> Completion:
    return Completion(
        **{
            "token_ids": np.array(ids, np.int32),
            "logprobs": -np.arange(1, len(ids) + 1, dtype=np.float32) / 8,
            "logprob_kind": LogprobKind.RAW,
            "finish": finish,
            "engine_finish": f"engine says {finish}",
            **more,
        }
    )


def says(text: str, **more: Any) -> Completion:
    """A whole turn."""
    return completion(ids_of(text), **more)


def cut(tokens: int) -> Completion:
    """`tokens` tokens without an end, cut by the limit that was asked for."""
    return completion((ids_of("the user wants the sum. ", stop=False) * tokens)[:tokens], Finish.LENGTH)


def call(name: str = "add", arguments: str = '{"a": 2, "b": 3}') -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@dataclass
class Request:
    """What an engine was asked."""

    prompt: list[int]
    sampling: Sampling
    session: str


Said = Completion | Exception | Callable[[], Awaitable[Completion]]


@dataclass
class Engine:
    """A policy that says one thing after the other, the last one again and again, and keeps what it was asked."""

    said: Sequence[Said]
    context_length: int = 1 << 20
    requests: list[Request] = field(default_factory=list[Request])
    running: int = 0

    @property
    def info(self) -> PolicyInfo:
        return PolicyInfo(name="told", engine="told", context_length=self.context_length, logprob_kind=LogprobKind.RAW)

    async def start(self) -> None:
        pass

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        said = self.said[min(len(self.requests), len(self.said) - 1)]
        self.requests.append(Request(prompt.tolist(), sampling, session))
        self.running += 1
        try:
            if isinstance(said, Completion):
                return said
            if isinstance(said, Exception):
                raise said
            return await said()
        finally:
            self.running -= 1

    async def close(self) -> None:
        pass


def after(seconds: float, said: Completion) -> Callable[[], Awaitable[Completion]]:
    async def wait() -> Completion:
        await asyncio.sleep(seconds)
        return said

    return wait


async def never() -> Completion:
    await asyncio.sleep(1000)
    raise AssertionError("not reached")


class Talk(Environment):
    """Answers with the given texts, then takes the reply as final; counts its life."""

    name = "talk"

    def __init__(self, *answers: str) -> None:
        self.answers = list(answers)
        self.log: list[str] = []

    async def setup(self, task: Task) -> Sequence[Message]:
        self.log.append("setup")
        return task.messages()

    async def step(self, reply: Message) -> StepResult | None:
        self.log.append("step")
        return StepResult(self.answers.pop(0)) if self.answers else None

    async def score(self, trace: Trace) -> float:
        self.log.append("score")
        return 1.0

    async def cleanup(self) -> None:
        self.log.append("cleanup")


NO_LIMITS = Limits(max_turns=None, max_generation=None, deadline=None, wall=None)


def attempt(
    env: Environment,
    engine: Engine,
    *,
    limits: Limits = NO_LIMITS,
    sampling: Sampling | None = None,
    rules: EndingRules | None = None,
    agent: Agent = chat,
    sink: Sink | None = None,
    resources: Resources | None = None,
    chosen: Family = SMOLLM,
    seed: int = 0,
    task: Task = TASK,
    context: ContextPolicy = ContextPolicy.KEEP,
    name: str = "g",
) -> Any:
    """The coroutine of one rollout."""
    loaded = LoadedPolicy(engine, chosen.renderer)
    settings = RolloutSettings(
        limits=limits, sampling=sampling or Sampling(), rules=rules or EndingRules(), agent=agent, context=context
    )
    head = head_for(env, task, loaded, group=name)
    return run_rollout(env, head, loaded, settings, seed=seed, sink=sink or MemorySink(), resources=resources)


def play(env: Environment, *said: Said, context_length: int = 1 << 20, **more: Any) -> Trace:
    """One rollout from begin to seal."""
    return asyncio.run(attempt(env, Engine(said, context_length), **more))


def versions_of(trace: Trace) -> TokenVersions:
    """Of its tokens, one by one."""
    tokens = Counter(version for version, count in trace.graph.versions.view.tolist() for _ in range(count))
    return TokenVersions(counts=tuple(sorted(tokens.items())), unknown=trace.graph.sampled_count - tokens.total())


def why(trace: Trace) -> Reason:
    assert trace.ending is not None
    return trace.ending.reason


def detail(trace: Trace) -> str:
    assert trace.ending is not None
    return trace.ending.detail
