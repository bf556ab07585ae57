"""The engine behind the wire: runs generations, pauses, resumes, aborts them and changes their weights.

Rules. Each generation has one timer, for its last token; whatever happens before takes what it has produced by then.
While paused nothing is produced. A client that leaves ends its generation, unless the server is one that does not
notice. All of it belongs to one event loop.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

import numpy as np

from rollbook.policy.testing.ask import Answer, Ask, Refused
from rollbook.policy.testing.faults import Fault
from rollbook.policy.testing.generation import Decode, Generation
from rollbook.policy.testing.latency import Latency, Times
from rollbook.policy.testing.model import TinyModel
from rollbook.policy.testing.prefix import PrefixCache
from rollbook.policy.testing.script import Scripted
from rollbook.policy.weights import PauseMode

__all__ = ["Scheduler"]


@dataclass(slots=True)
class _Run:
    """A generation and who waits for it."""

    generation: Generation
    done: asyncio.Event = field(default_factory=asyncio.Event)
    timer: asyncio.TimerHandle | None = None


class Scheduler:
    """One engine."""

    def __init__(
        self, *, model: TinyModel, decode: Decode, script: Scripted | None, latency: Latency, block: int, deaf: bool
    ) -> None:
        """`block`: of the prefix cache. `deaf`: a client that leaves does not end its generation."""
        self.version = 0
        self.label = "default"
        self._refuses = False
        self._model, self._decode, self._script, self._latency = model, decode, script, latency
        self._cache = PrefixCache(block)
        self._deaf = deaf
        self._running: dict[int, _Run] = {}
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._idle.set()
        self._next = 0

    @property
    def running(self) -> int:
        """Generations that are not done."""
        return len(self._running)

    @property
    def paused(self) -> bool:
        return not self._open.is_set()

    async def generate(self, ask: Ask, *, fault: Fault | None = None) -> Answer:
        """Run one generation; `fault` may abort it or replace the weights at its half. Raises `Refused`."""
        if self.paused and self._refuses:
            raise Refused(503, "the engine is paused", kind="ServiceUnavailableError")
        await self._open.wait()
        cached = self._cache.shared(ask.session, np.array(ask.prompt, np.int32))
        generation = self._begin(ask, cached)
        await self._finish(_Run(generation), fault)
        if self._script is not None and generation.scripted is not None:
            self._script.delivered(ask, generation.tokens, generation.scripted)
        self._cache.keep(ask.session, np.array([*ask.prompt, *generation.tokens], np.int32))
        return generation.answer(cached)

    def update(self, label: str) -> None:
        """The next tokens come from other weights, called `label`."""
        now = time.monotonic()
        self.version += 1
        self.label = label
        for run in self._running.values():
            run.generation.plan(self.version, label, run.generation.produced(now))
            self._arm(run, now)

    async def pause(self, how: PauseMode, *, refuse: bool) -> None:
        """Return once it stands. `refuse`: new requests are turned away; otherwise they wait."""
        now = time.monotonic()
        self._open.clear()
        self._refuses = refuse
        if how is PauseMode.KEEP:
            for run in self._running.values():
                run.generation.freeze(now)
                self._disarm(run)
            return
        if how is PauseMode.ABORT:
            self.abort(lambda _: True)
        await self._idle.wait()

    def resume(self) -> None:
        """Let everything go on."""
        now = time.monotonic()
        for run in self._running.values():
            run.generation.thaw(now)
            self._arm(run, now)
        self._open.set()

    def abort(self, which: Callable[[Ask], bool]) -> int:
        """End those generations with what they have; returns how many."""
        now = time.monotonic()
        found = [run for run in self._running.values() if which(run.generation.ask)]
        for run in found:
            run.generation.cut(run.generation.produced(now))
            self._disarm(run)
            run.done.set()
        return len(found)

    def runs(self, rid: str) -> bool:
        """Whether a request of exactly this name is running."""
        return any(run.generation.ask.rid == rid for run in self._running.values())

    async def idle(self) -> None:
        """Return once nothing runs."""
        await self._idle.wait()

    async def wait(self, session: str, number: int, prompt_tokens: int, tokens: int) -> None:
        """Take as long as a generation of so many tokens does."""
        if seconds := self._latency.times(session, number, prompt_tokens, tokens).total:
            await asyncio.sleep(seconds)

    def forget(self) -> None:
        """Empty the prefix cache."""
        self._cache.clear()

    def reset(self) -> None:
        """Begin anew: the first weights, no cache, scripts from their start."""
        self.version, self.label = 0, "default"
        self.forget()
        if self._script is not None:
            self._script.clear()

    def _begin(self, ask: Ask, cached: int) -> Generation:
        def timing(tokens: int) -> Times:
            return self._latency.times(ask.session, ask.number, len(ask.prompt) - cached, tokens)

        scripted = None if self._script is None or not ask.session else self._script.ids(ask)
        now = time.monotonic()
        generation = Generation(ask, model=self._model, decode=self._decode, scripted=scripted, timing=timing, now=now)
        generation.plan(self.version, self.label)
        return generation

    async def _finish(self, run: _Run, fault: Fault | None) -> None:
        """Return at its last token."""
        number, self._next = self._next, self._next + 1
        self._running[number] = run
        self._idle.clear()
        try:
            if fault is Fault.ABORT or fault is Fault.UPDATE:
                await self._half(run, fault)
            now = time.monotonic()
            if not run.done.is_set() and (run.generation.remaining(now) or run.generation.frozen):
                self._arm(run, now)
                await run.done.wait()
        except asyncio.CancelledError:
            if self._deaf:
                left = run.generation.remaining(time.monotonic())
                asyncio.get_running_loop().call_later(left, self._drop, number)
            else:
                self._drop(number)
            raise
        finally:
            self._disarm(run)
        self._drop(number)

    async def _half(self, run: _Run, fault: Fault) -> None:
        """Let half of its tokens come; then abort it or replace the weights."""
        generation = run.generation
        half = len(generation.tokens) // 2
        while not run.done.is_set() and (left := generation.until(half, time.monotonic())) > 0:
            with suppress(TimeoutError):
                await asyncio.wait_for(run.done.wait(), max(left, 0.001))
        if run.done.is_set():
            return
        if fault is Fault.ABORT:
            generation.cut(half)
            run.done.set()
        else:
            self.update(f"step-{self.version + 1}")
            generation.plan(self.version, self.label, half)

    def _drop(self, number: int) -> None:
        self._running.pop(number, None)
        if not self._running:
            self._idle.set()

    def _arm(self, run: _Run, now: float) -> None:
        self._disarm(run)
        run.timer = asyncio.get_running_loop().call_later(run.generation.remaining(now), run.done.set)

    def _disarm(self, run: _Run) -> None:
        if run.timer is not None:
            run.timer.cancel()
            run.timer = None
