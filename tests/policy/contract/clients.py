"""The clients, and what a check is given: a client together with a running engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from enum import Enum, auto
from pathlib import Path
from typing import Any

import numpy as np

from rollbook.policy import Completion, Policy, TokenIds
from rollbook.policy.control import SglangControl, VllmControl
from rollbook.policy.http import EngineAddress
from rollbook.policy.llamacpp import LlamacppPolicy
from rollbook.policy.remote import RemoteConfig
from rollbook.policy.sglang import SglangPolicy
from rollbook.policy.testing import Dialect, EngineShape, FakeEngine
from rollbook.policy.vllm import Route, VllmPolicy
from rollbook.policy.weights import WeightControl
from rollbook.trace import Sampling
from tests.policy.held import sampled

__all__ = ["CLIENTS", "PROMPT", "Can", "Check", "Client", "Handle"]

PROMPT = [(7 * each) % 61 + 3 for each in range(64)]
"""Ids that the fake engine knows."""


class Can(Enum):
    """What not every engine or client can do."""

    ECHO = auto()
    """It returns the prompt's ids."""
    STOP_IDS = auto()
    """It ends a generation at any id that is asked for."""
    CACHED = auto()
    """It tells cached tokens."""
    CONTROL = auto()
    """It can be paused and resumed while it samples."""
    VERSIONS = auto()
    """Its weights can be replaced and labelled, and it tells which tokens came from which."""
    STOP_TEXT = auto()
    """The handle has the text of ids."""
    RESCORED = auto()
    """A logprob that is left out is scored by another request."""
    FREES = auto()
    """It ends a generation whose client has left at once."""


@dataclass(frozen=True)
class Client:
    """One way to talk to one kind of engine."""

    name: str
    dialect: Dialect
    build: Callable[[RemoteConfig], Policy]
    can: frozenset[Can]
    control: Callable[[EngineAddress], WeightControl] | None = None


_FULL = frozenset((Can.ECHO, Can.STOP_IDS, Can.CACHED, Can.CONTROL, Can.VERSIONS, Can.STOP_TEXT, Can.FREES))
CLIENTS = (
    Client("vllm", Dialect.VLLM, VllmPolicy, _FULL, VllmControl),
    Client(
        "vllm-completions",
        Dialect.VLLM,
        lambda config: VllmPolicy(config, route=Route.COMPLETIONS),
        _FULL,
        VllmControl,
    ),
    Client("sglang", Dialect.SGLANG, SglangPolicy, _FULL, SglangControl),
    Client("llamacpp", Dialect.LLAMACPP, LlamacppPolicy, frozenset((Can.CACHED, Can.STOP_TEXT, Can.RESCORED))),
)


@dataclass
class Handle:
    """A client with an engine that runs."""

    client: Client
    url: str
    stop_ids: frozenset[int]
    prompt: list[int]
    """Ids that the model knows; at least 64 of them, and more tokens likely behind them."""
    context_length: int
    can: frozenset[Can]
    decode: Callable[[TokenIds], str] | None = None
    api_key: str | None = None
    model: str | None = None
    underway: float = 0.1
    """Seconds after which a long generation has some tokens and is not done."""
    long: int = 200
    """Tokens of a long generation."""
    weights: Path = Path("/weights")
    """Another set of the model's weights, as the engine sees them."""
    control: WeightControl | None = None
    fake: FakeEngine | None = None
    sessions: int = field(default=0)

    @classmethod
    @contextmanager
    def faked(
        cls, client: Client, shape: EngineShape, *, decode: Callable[[TokenIds], str] | None = None, **fake: Any
    ) -> Generator[Handle]:
        """`client` with a fake engine of that `shape`; `fake`: what else it is made with."""
        with FakeEngine(client.dialect, shape=shape, **fake) as engine:
            yield cls(
                client=client,
                url=engine.url,
                stop_ids=frozenset(shape.stop_ids),
                prompt=PROMPT,
                context_length=shape.context_length,
                can=client.can,
                decode=decode,
                fake=engine,
            )

    @property
    def ids(self) -> TokenIds:
        return np.array(self.prompt, np.int32)

    def session(self) -> str:
        """A new one."""
        self.sessions += 1
        return f"contract-{self.sessions}"

    def make(self, *, seconds: float = 60.0, context_length: int | None = None) -> Policy:
        """A client that is not started."""
        return self.client.build(
            RemoteConfig(
                name=f"{self.client.name}:{self.url}",
                address=EngineAddress(url=self.url, timeout=seconds, api_key=self.api_key),
                stop_ids=self.stop_ids,
                model=self.model,
                context_length=context_length,
            )
        )

    @asynccontextmanager
    async def policy(self, *, seconds: float = 60.0) -> AsyncGenerator[Policy]:
        """A started client."""
        policy = self.make(seconds=seconds)
        await policy.start()
        try:
            yield policy
        finally:
            await policy.close()

    @asynccontextmanager
    async def controlled(self) -> AsyncGenerator[WeightControl]:
        """The engine's weights."""
        assert self.client.control is not None
        control = self.client.control(EngineAddress(url=self.url, api_key=self.api_key))
        await control.open()
        try:
            yield control
        finally:
            await control.close()

    async def greedy(self, policy: Policy, tokens: int, prompt: Sequence[int] | None = None) -> Completion:
        """The likeliest continuation."""
        asked = np.array(self.prompt if prompt is None else prompt, np.int32)
        sampling = Sampling(temperature=0.0, max_tokens=tokens, seed=0)
        return await sampled(policy, asked, sampling, session=self.session())

    async def settled(self, done: Callable[[], bool], seconds: float = 2.0) -> bool:
        """Whether `done` came true within that time."""
        for _ in range(int(seconds / 0.01)):
            if done():
                return True
            await asyncio.sleep(0.01)
        return done()


@dataclass(frozen=True)
class Check:
    """One thing that is held."""

    run: Callable[[Handle], Awaitable[None]]
    needs: frozenset[Can] = frozenset()

    @property
    def name(self) -> str:
        return self.run.__name__
