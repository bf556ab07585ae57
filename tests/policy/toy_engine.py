"""An engine in the test's own process that keeps every promise, and breaks those that a test names."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from msgspec.structs import replace

from rollbook.errors import ConfigError
from rollbook.policy import Completion, EngineBusy, PolicyInfo, TokenIds
from rollbook.policy.testing.model import TinyModel
from rollbook.trace import Finish, LogprobKind, Reason, RolloutFailure, Sampling
from tests.cases.case import STOP, byte_ids, bytes_renderer

VOCABULARY = 263
"""Of the renderer with one token a byte."""
STATES = 7
"""So few that a greedy reply repeats itself."""
SEED = 7
ANSWERED = byte_ids("Yes.")
"""Behind these ids the model ends its turn."""


@dataclass
class ToyEngine:
    """Each field takes one promise back."""

    echo: bool = True
    count: bool = True
    context: int | None = 4096
    said: LogprobKind = LogprobKind.RAW
    kind: LogprobKind = LogprobKind.RAW
    """What the logprobs are."""
    ignores: tuple[str, ...] = ()
    """Sampling fields that are dropped."""
    refuses: tuple[str, ...] = ()
    """Sampling fields that the client refuses where they are not neutral."""
    drops_stop: bool = False
    goes_on: int = 0
    """Tokens behind an end-of-turn token."""
    drops_word: bool = False
    """The tokens of a stop string are not returned."""
    behind_word: int = 0
    """Tokens behind a stop string that are returned."""
    one_more: bool = False
    rescored: int = 0
    noise: float = 0.0
    """Nats by which a logprob differs from call to call."""
    unsteady: bool = False
    """Replies depend on how many there were."""
    deaf: bool = False
    """Continues something else than what it is sent."""
    cached: int | None = 600
    takes_all: bool = False
    """A prompt beyond the context gets a reply."""
    slow: float = 0.0
    """Seconds a token."""
    versions: bool = True
    extra_ids: int = 0
    """Ids of the model beyond the tokenizer's."""
    failure: Exception | None = None
    """What every request ends as."""
    busy: int = 0
    """Requests that are refused for load first."""
    calls: int = 0
    asked: list[Sampling] = field(default_factory=list)

    @property
    def info(self) -> PolicyInfo:
        return PolicyInfo(name="toy", engine="toy 1", context_length=self.context, logprob_kind=self.said)

    async def start(self) -> None:
        """Nothing to bring up."""

    async def close(self) -> None:
        """Nothing to free."""

    async def sample(self, prompt: TokenIds, sampling: Sampling, *, session: str) -> Completion:
        self.asked.append(sampling)
        self.calls += 1
        self._refuse(prompt, sampling)
        await asyncio.sleep(self.slow * (sampling.max_tokens or 1))
        ids, logprobs, finish = self._reply(prompt.tolist(), self._heard(sampling))
        shifted = np.array(logprobs, np.float32) - self.noise * (self.calls % 2)
        return Completion(
            token_ids=np.array(ids, np.int32),
            logprobs=shifted,
            rescored=np.arange(min(self.rescored, len(ids)), dtype=np.int32),
            logprob_kind=self.said,
            finish=finish,
            versions=((3, len(ids)),) if self.versions else (),
            prompt_tokens=len(prompt) if self.count else None,
            prompt_ids=prompt if self.echo else None,
            cached_tokens=None if self.cached is None else min(self.cached, len(prompt)),
        )

    def _refuse(self, prompt: TokenIds, sampling: Sampling) -> None:
        if self.calls <= self.busy:
            raise EngineBusy(Reason.RATE_LIMITED, "HTTP 429", 0.0)
        if self.failure is not None:
            raise self.failure
        neutral = Sampling()
        for name in self.refuses:
            if getattr(sampling, name) != getattr(neutral, name):
                raise ConfigError(f"the toy has no {name}")
        room = math.inf if self.context is None else self.context
        if len(prompt) + (sampling.max_tokens or 1) > room and not self.takes_all:
            raise RolloutFailure(Reason.CONTEXT_OVERFLOW, "it does not fit")

    def _heard(self, sampling: Sampling) -> Sampling:
        neutral = Sampling()
        return replace(sampling, **{name: getattr(neutral, name) for name in self.ignores})

    def _reply(self, prompt: list[int], sampling: Sampling) -> tuple[list[int], list[float], Finish]:
        if sampling.grammar is not None:
            ids = [*byte_ids(sampling.grammar.split('"')[1]), STOP][: sampling.max_tokens]
            return ids, [-0.5] * len(ids), Finish.STOP
        model = TinyModel(VOCABULARY + self.extra_ids, seed=SEED)
        seed = (sampling.seed or 0) + (self.calls if self.unsteady else 0)
        limit = (sampling.max_tokens or 1) + self.one_more
        path = [*prompt, prompt[-1] + 1] if self.deaf and len(prompt) > 12 else list(prompt)
        ids: list[int] = []
        logprobs: list[float] = []
        while len(ids) < limit:
            token, logprob = self._next(model, path, ids, sampling, seed)
            ids.append(token)
            logprobs.append(logprob)
            path.append(token)
            if token == STOP:
                return self._ended(ids, logprobs)
            text = bytes_renderer().decode(np.array(ids, np.int32))
            word = next((word for word in sampling.stop if word in text), None)
            if word is not None:
                kept = len(ids) - (len(byte_ids(word)) if self.drops_word else 0)
                ids, logprobs = ids[:kept], logprobs[:kept]
                return ids + ids[:1] * self.behind_word, logprobs + logprobs[:1] * self.behind_word, Finish.STOP_STRING
        return ids, logprobs, Finish.LENGTH

    def _next(
        self, model: TinyModel, path: Sequence[int], ids: Sequence[int], sampling: Sampling, seed: int
    ) -> tuple[int, float]:
        if list(path[-4:]) == ANSWERED:
            return STOP, -0.01
        last = path[-1] % STATES
        choice = model.penalised(last, 3, sampling, ids, path)
        token = model.draw(choice, sampling, seed, len(path))
        if token == STOP or (self.unsteady and sampling.temperature == 0 and self.calls % 2 and len(ids) > 2):
            token = (token + 1) % 256
        return token, min(model.logprob(choice, self.kind, last, 3, token), 0.0)

    def _ended(self, ids: list[int], logprobs: list[float]) -> tuple[list[int], list[float], Finish]:
        if self.goes_on:
            return [*ids, *[65] * self.goes_on], [*logprobs, *[-1.0] * self.goes_on], Finish.LENGTH
        cut = -1 if self.drops_stop and len(ids) > 1 else None
        if self.drops_stop and len(ids) == 1:
            return [65], [-1.0], Finish.STOP
        return ids[:cut], logprobs[:cut], Finish.STOP


def made(**changes: Any) -> ToyEngine:
    """An engine with these promises taken back."""
    return ToyEngine(**changes)
