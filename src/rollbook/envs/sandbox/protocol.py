"""The sandbox as environments see it, and the provider behind it as their lifecycle sees it.

Order of a sandbox's life: its ticket is on disk before anything is made; `Provider.create` makes what the ticket names,
`Provider.ready` waits until it can be used; `Provider.remove` takes away all that a ticket names, whatever of it is
there, and may be asked again by another process that has nothing but the ticket.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from rollbook.envs.outcome import ToolRefused
from rollbook.envs.sandbox.result import ExecResult, Kind, SandboxInfo, SandboxLimits
from rollbook.errors import RollbookError

__all__ = ["CommandRefused", "FileRefused", "Provider", "Sandbox", "SandboxRemains", "SandboxSpec", "Ticket"]


class FileRefused(ToolRefused):
    """A file of a sandbox cannot be read or written safely: a link, a pipe, a device, too large, not there. The fault
    is that of what ran inside; out of a tool it is an observation and the policy's fault."""


class CommandRefused(ToolRefused):
    """A command that no system can start: empty, too long, or with characters that have no place in one. Out of a tool
    it is an observation and the policy's fault."""


class SandboxRemains(RollbookError):
    """Something of a sandbox could not be removed; its ticket stays, and the next sweep tries again."""


class Sandbox(Protocol):
    """One sandbox. Commands in it share a workspace; each has its own processes, which end with it."""

    @property
    def info(self) -> SandboxInfo:
        """What it is made of."""
        ...

    async def exec(
        self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = 10.0, limits: SandboxLimits | None = None
    ) -> ExecResult:
        """Run a command in the workspace and wait for it, for at most `seconds`. `limits`: other bounds for this
        command (memory, disk and files stay those of the sandbox). Raises `RolloutFailure` (``sandbox_lost``) and
        `CommandRefused`."""
        ...

    async def write(self, path: str, data: bytes) -> None:
        """Write a file at `path`, relative to the workspace; folders are made. Raises `FileRefused`."""
        ...

    async def read(self, path: str, limit: int) -> bytes:
        """A plain file of at most `limit` bytes, reached without a link. Raises `FileRefused`."""
        ...

    async def close(self) -> None:
        """End all that runs and remove everything. Closing twice does nothing."""
        ...


class SandboxSpec(msgspec.Struct, frozen=True):
    """What a sandbox shall be."""

    limits: SandboxLimits
    network: bool = False
    readonly: tuple[str, ...] = ()
    """Further folders of the host that are seen inside, at the same place and read-only."""


class Ticket(msgspec.Struct, frozen=True):
    """All that is needed to remove a sandbox, by whoever finds this. Written before it is made."""

    id: str
    provider: str
    """Who can remove it: `Provider.name`."""
    kind: Kind
    owner: int
    """Process id of its owner."""
    owner_started: int
    """When the owner started, in clock ticks since boot: process ids come again."""
    boot: str
    """The boot in which it was made."""
    space: str
    """The owner's namespace of process ids; in another one the owner cannot be judged."""
    expires: float
    """Seconds since boot. A healthy owner moves it on."""
    label: str
    """An environment variable, with its value, of each process that starts something in the sandbox."""
    groups: tuple[str, ...] = ()
    """Folders of its control groups."""
    workspace: str | None = None
    """Its folder on the host; None: it has none."""
    failed: str | None = None
    """Why it could not be removed; None: nobody failed yet."""


class Provider(Protocol):
    """Makes and removes sandboxes. Each step may be cancelled; `remove` follows whatever was begun."""

    @property
    def name(self) -> str:
        """Marks its tickets."""
        ...

    @property
    def kind(self) -> Kind: ...

    def plan(self, name: str) -> tuple[tuple[str, ...], bool]:
        """What the sandbox `name` will leave on the host: folders of control groups, and whether a workspace."""
        ...

    async def create(self, ticket: Ticket, spec: SandboxSpec) -> None:
        """Begin to make it. Raises `RolloutFailure`."""
        ...

    async def ready(self, ticket: Ticket, spec: SandboxSpec) -> Sandbox:
        """Wait until it can be used. Raises `RolloutFailure`."""
        ...

    async def remove(self, ticket: Ticket) -> None:
        """Take away all that is there of it. Raises `SandboxRemains`."""
        ...
