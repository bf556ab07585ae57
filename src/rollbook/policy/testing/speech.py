"""What every dialect has behind it: the settings, the scheduler, and one generation with its fault worked in."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from rollbook.policy.testing.ask import Answer, Ask, Refused, Reply, Request
from rollbook.policy.testing.damage import damage
from rollbook.policy.testing.faults import Dialect, Fault
from rollbook.policy.testing.log import LogEntry, prompt_digest
from rollbook.policy.testing.openai_wire import TextScript
from rollbook.policy.testing.scheduler import Scheduler
from rollbook.policy.testing.shape import EngineShape
from rollbook.trace.call import LogprobKind

__all__ = ["Call", "Control", "Engine", "Settings", "Speech", "seed_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How a fake engine is started."""

    dialect: Dialect
    shape: EngineShape
    kind: LogprobKind
    """Of the logprobs that are reported."""
    text_script: TextScript


@dataclass(slots=True)
class Call:
    """One generation request on its way through."""

    entry: LogEntry
    body: dict[str, Any]
    fault: Fault | None


class Engine:
    """Settings and scheduler; counts what is needed to name requests."""

    def __init__(self, settings: Settings, scheduler: Scheduler) -> None:
        self.settings = settings
        self.shape = settings.shape
        self.scheduler = scheduler
        self.names = 0
        """Requests that were named so far."""

    def name(self) -> str:
        """For a request that brings none."""
        self.names += 1
        return f"fake-{self.names}"

    async def answer(self, call: Call, ask: Ask, *, zero: float, bare_nan: bool = False) -> Answer:
        """Generate, note it down, and spoil it as the plan says. Raises `Refused`."""
        answer = await self.scheduler.generate(ask, fault=call.fault)
        entry = call.entry
        entry.token_ids = list(answer.token_ids)
        entry.finish = answer.stop.name.lower()
        entry.versions = list(answer.spans)
        entry.cached_tokens = answer.cached_tokens
        if answer.token_ids:
            damage(answer, call.fault, zero, bare_nan=bare_nan)
        return answer

    def note(self, entry: LogEntry, prompt: list[int]) -> None:
        """Keep what tells the prompt."""
        entry.prompt_tokens = len(prompt)
        entry.prompt_digest = prompt_digest(prompt)


Control = Callable[[Request], Awaitable[Reply]]


class Speech(Protocol):
    """One dialect."""

    @property
    def generations(self) -> Mapping[str, Callable[[Call], Awaitable[Any]]]:
        """Path -> what answers a POST to it, as plain data for JSON. It may raise `Refused`."""
        ...

    @property
    def controls(self) -> Mapping[tuple[str, str], Control]:
        """(method, path) -> what answers it. It may raise `Refused`."""
        ...

    def error(self, refused: Refused) -> Any:
        """The body of a refusal."""
        ...


def seed_of(given: int | None, number: int) -> int:
    """The seed of a request: its own, or one that is the engine's choice."""
    return given if given is not None else 0x5EED + number
