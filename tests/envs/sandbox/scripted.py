"""A provider that does as a script says, and remembers which sandboxes it has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from rollbook.envs.sandbox import (
    Cause,
    ExecResult,
    Kind,
    Sandbox,
    SandboxInfo,
    SandboxLimits,
    SandboxRemains,
    SandboxSpec,
    Ticket,
)

__all__ = ["Scripted", "Step"]


@dataclass(slots=True)
class Step:
    """What one step does: wait, then fail, if anything."""

    seconds: float = 0.0
    error: BaseException | None = None

    async def do(self) -> None:
        await asyncio.sleep(self.seconds)
        if self.error is not None:
            raise self.error


@dataclass(slots=True)
class Scripted:
    """`create` makes the sandbox live before it waits or fails, as real ones do."""

    creates: list[Step] = field(default_factory=list[Step])
    readies: list[Step] = field(default_factory=list[Step])
    removes: list[str | None] = field(default_factory=list[str | None])
    """Why removing fails, in order; None: it works."""
    live: set[str] = field(default_factory=set[str])
    log: list[str] = field(default_factory=list[str])
    on_create: object = None
    name: str = "scripted"
    kind: Kind = Kind.BUBBLEWRAP

    def plan(self, name: str) -> tuple[tuple[str, ...], bool]:
        return (f"group-{name}",), False

    async def create(self, ticket: Ticket, spec: SandboxSpec) -> None:
        self.log.append("create")
        if callable(self.on_create):
            self.on_create(ticket)
        self.live.add(ticket.id)
        await (self.creates.pop(0) if self.creates else Step()).do()

    async def ready(self, ticket: Ticket, spec: SandboxSpec) -> Sandbox:
        self.log.append("ready")
        await (self.readies.pop(0) if self.readies else Step()).do()
        return _Box(self, ticket)

    async def remove(self, ticket: Ticket) -> None:
        self.log.append("remove")
        await asyncio.sleep(0)
        problem = self.removes.pop(0) if self.removes else None
        if problem is not None:
            raise SandboxRemains(problem)
        self.live.discard(ticket.id)


class _Box:
    def __init__(self, provider: Scripted, ticket: Ticket) -> None:
        self.provider, self.ticket = provider, ticket

    @property
    def info(self) -> SandboxInfo:
        return SandboxInfo(self.ticket.id, Kind.BUBBLEWRAP, isolates=True, network=False, groups=False)

    async def exec(
        self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = 10.0, limits: SandboxLimits | None = None
    ) -> ExecResult:
        assert self.ticket.id in self.provider.live
        if argv[0] == "sleep":
            await asyncio.sleep(float(argv[1]))
        return ExecResult(Cause.EXITED, 0, None, stdin, b"", 0, 0, 0.0)

    async def write(self, path: str, data: bytes) -> None: ...

    async def read(self, path: str, limit: int) -> bytes:
        return b""

    async def close(self) -> None: ...
