"""One generation: its tokens, and how many of them there are at a given moment. No clock in here; time is passed in.

Rules. All tokens are planned at the start by the weights of that moment. When the weights change, what has been
produced stays, and the rest is planned anew; so each token has the version that made it. A pause stops the generation's
own time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rollbook.policy.testing.ask import Answer, Ask, Stop
from rollbook.policy.testing.latency import Times
from rollbook.policy.testing.model import Choice, TinyModel, penalises

__all__ = ["Generation"]

Decode = Callable[[Sequence[int]], str]
Timing = Callable[[int], Times]


class Generation:
    """From the first token to the last."""

    def __init__(
        self, ask: Ask, *, model: TinyModel, decode: Decode, scripted: list[int] | None, timing: Timing, now: float
    ) -> None:
        """`timing`: the times of a request of so many tokens."""
        self.ask = ask
        self.scripted = scripted
        self.tokens: list[int] = []
        self.stop = Stop.LENGTH
        self.matched: int | str | None = None
        self._model, self._decode, self._timing = model, decode, timing
        self._versions: list[tuple[int, str, int]] = []
        self._began, self._lost = now, 0.0
        self._frozen_at: float | None = None
        self.times = timing(0)

    def plan(self, version: int, label: str, kept: int = 0) -> None:
        """Keep the first `kept` tokens and plan the rest by weights `version`, which are called `label`. One that is
        whole stays as it is."""
        if self.tokens and kept == len(self.tokens):
            return
        if self._versions and self._versions[-1][2] == kept:
            self._versions.pop()
        self._versions.append((version, label, kept))
        del self.tokens[kept:]
        self.stop, self.matched = Stop.LENGTH, None
        while len(self.tokens) < self.ask.limit and self.matched is None:
            self.tokens.append(self._next(version))
            self._look_for_stop()
        self.times = self._timing(len(self.tokens))

    def produced(self, now: float) -> int:
        """Tokens that are there at `now`."""
        spent = self._elapsed(now) - self.times.queue - self.times.prefill
        if spent < 0:
            return 0
        if not self.times.decode:
            return len(self.tokens)
        return min(len(self.tokens), int(spent / self.times.decode * len(self.tokens) + 1e-9))

    @property
    def frozen(self) -> bool:
        """Whether its time stands still."""
        return self._frozen_at is not None

    def until(self, count: int, now: float) -> float:
        """Seconds to its token number `count`."""
        share = count / len(self.tokens) if self.tokens else 1.0
        due = self.times.queue + self.times.prefill + self.times.decode * share
        return max(0.0, due - self._elapsed(now))

    def remaining(self, now: float) -> float:
        """Seconds to the last token."""
        return max(0.0, self.times.total - self._elapsed(now))

    def freeze(self, now: float) -> None:
        """Stop its time."""
        self._frozen_at = now if self._frozen_at is None else self._frozen_at

    def thaw(self, now: float) -> None:
        """Let its time go on."""
        if self._frozen_at is not None:
            self._lost += now - self._frozen_at
            self._frozen_at = None

    def cut(self, count: int) -> None:
        """An abort leaves `count` tokens."""
        del self.tokens[count:]
        self.stop, self.matched = Stop.ABORT, None

    def answer(self, cached: int) -> Answer:
        """All that can be said of it."""
        made = self._made_by()
        choices = [self._choice(at, version) for at, (version, _) in enumerate(made)]
        spans: list[tuple[str, int]] = []
        for _, label in made:
            spans[-1:] = [(label, spans[-1][1] + 1)] if spans and spans[-1][0] == label else [*spans[-1:], (label, 1)]
        ask = self.ask
        return Answer(
            prompt=ask.prompt,
            token_ids=list(self.tokens),
            logprobs=[
                self._model.logprob(choice, ask.kind, self._last(at), made[at][0], self.tokens[at])
                for at, choice in enumerate(choices)
            ],
            top=[_likeliest(choice.logprobs(ask.kind), ask.top) for choice in choices],
            stop=self.stop,
            matched=self.matched,
            prompt_tokens=len(ask.prompt),
            completion_tokens=len(self.tokens),
            cached_tokens=cached,
            spans=spans,
            times=self.times,
        )

    def _next(self, version: int) -> int:
        at = len(self.tokens)
        if self.scripted is not None:
            return self.scripted[at]
        choice = self._choice(at, version)
        return self._model.draw(choice, self.ask.sampling, self.ask.seed, at)

    def _look_for_stop(self) -> None:
        if self.tokens[-1] in self.ask.stops:
            self.stop, self.matched = Stop.ID, self.tokens[-1]
        elif self.ask.sampling.stop:
            text = self._decode(self.tokens)
            found = [word for word in self.ask.sampling.stop if word in text]
            if found:
                self.stop, self.matched = Stop.STRING, found[0]
        if self.scripted is not None and self.matched is None and len(self.tokens) == len(self.scripted):
            self.matched, self.stop = self.tokens[-1], Stop.ID

    def _choice(self, at: int, version: int) -> Choice:
        sampling = self.ask.sampling
        if not penalises(sampling):
            return self._model.choice(self._last(at), version, sampling)
        sampled = self.tokens[:at]
        whole = self.ask.prompt + sampled
        return self._model.penalised(
            self._last(at), version, sampling, whole if self.ask.counts_prompt else sampled, whole
        )

    def _last(self, at: int) -> int:
        return self.tokens[at - 1] if at else self.ask.prompt[-1]

    def _made_by(self) -> list[tuple[int, str]]:
        """(version, label) of each token."""
        starts = np.array([start for _, _, start in self._versions])
        which = np.searchsorted(starts, np.arange(len(self.tokens)), side="right") - 1
        return [self._versions[each][:2] for each in which.tolist()]

    def _elapsed(self, now: float) -> float:
        return (now if self._frozen_at is None else self._frozen_at) - self._began - self._lost


def _likeliest(logprobs: Sequence[float], count: int) -> list[tuple[int, float]]:
    if not count:
        return []
    order = np.argsort(-np.asarray(logprobs), kind="stable")[:count].tolist()
    return [(each, logprobs[each]) for each in order]
