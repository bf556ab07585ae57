"""Keeps account of sandboxes: none is made that is not on disk, and none is forgotten before it is gone.

Order of opening: the ticket is written and synced, then the provider makes the sandbox, step by step. A failure or a
cancellation in any step removes what the ticket names. Closing removes the sandbox first and its ticket last; where
removing fails, the ticket stays with the reason, `leftovers` shows it, and each sweep tries again.

A sweep removes sandboxes whose owner is dead, or whose ticket has expired, for an owner that lives moves its tickets
on. Owners of another namespace of process ids cannot be judged: there only expiry counts.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import msgspec

from rollbook.envs.finishing import to_its_end
from rollbook.envs.sandbox.host_processes import boot_id, is_running, pid_space, since_boot, started
from rollbook.envs.sandbox.protocol import Provider, Sandbox, SandboxRemains, SandboxSpec, Ticket
from rollbook.envs.sandbox.result import ExecResult, SandboxInfo, SandboxLimits
from rollbook.envs.sandbox.tickets import TicketFolder, label_of
from rollbook.errors import RollbookError, boundary
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["Leftover", "SandboxLifecycle", "Swept"]

LIFETIME = 1800.0
"""Seconds until a ticket expires that nobody moves on."""


@dataclass(frozen=True, slots=True)
class Leftover:
    """A sandbox that should not be there any more, or a file that says nothing."""

    id: str
    why: str
    """Its owner is dead, it has expired, or why it could not be removed."""
    ticket: Ticket | None
    """None: the file cannot be read."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What a sweep did."""

    removed: tuple[str, ...]
    """Ids that are gone."""
    remaining: tuple[Leftover, ...]
    """What could not be removed."""


class SandboxLifecycle:
    """Opens, closes and sweeps sandboxes, with their tickets in one folder."""

    def __init__(self, folder: Path, lifetime: float = LIFETIME) -> None:
        """`lifetime`: seconds; a healthy owner writes its tickets anew three times in it."""
        self.tickets = TicketFolder(folder)
        self.lifetime = lifetime

    async def open(self, provider: Provider, spec: SandboxSpec) -> Sandbox:
        """A new sandbox. Raises `RolloutFailure`; then nothing of it is left but what `leftovers` shows."""
        ticket = self._ticket(provider)
        try:
            self.tickets.put(ticket)
        except OSError as error:
            raise RolloutFailure(Reason.SANDBOX_LOST, f"no ticket could be written: {error}") from error
        try:
            with boundary("sandbox", _ProviderError):
                await provider.create(ticket, spec)
                inside = await provider.ready(ticket, spec)
        except _ProviderError as error:
            await self._drop(provider, ticket)
            raise RolloutFailure(Reason.ENV_SETUP, error) from error
        except BaseException:
            await self._drop(provider, ticket)
            raise
        return _Opened(self, provider, ticket, inside)

    async def _drop(self, provider: Provider, ticket: Ticket) -> None:
        """Remove what was begun; what remains is noted, for the first failure is the one to tell."""
        try:
            await self.remove(provider, ticket)
        except SandboxRemains:
            return

    def _ticket(self, provider: Provider) -> Ticket:
        name = secrets.token_hex(8)
        groups, folder = provider.plan(name)
        start = started(os.getpid())
        assert start is not None
        return Ticket(
            id=name,
            provider=provider.name,
            kind=provider.kind,
            owner=os.getpid(),
            owner_started=start,
            boot=boot_id(),
            space=pid_space(),
            expires=since_boot() + self.lifetime,
            label=label_of(name),
            groups=groups,
            workspace=str(self.tickets.workspace(name)) if folder else None,
        )

    async def remove(self, provider: Provider, ticket: Ticket) -> None:
        """Remove a sandbox and then its ticket, whoever cancels meanwhile. Raises `SandboxRemains`."""
        await to_its_end(self._remove(provider, ticket))

    async def _remove(self, provider: Provider, ticket: Ticket) -> None:
        try:
            with boundary(f"sandbox {ticket.id} could not be removed", SandboxRemains):
                await provider.remove(ticket)
                self.tickets.remove(ticket.id)
        except SandboxRemains as error:
            with suppress(OSError):  # a full disk: the ticket that is there is swept too, without the reason
                if self.tickets.has(ticket.id):
                    self.tickets.put(msgspec.structs.replace(ticket, failed=str(error)))
            raise

    def leftovers(self) -> list[Leftover]:
        """All sandboxes that should be gone and are not, whoever made them."""
        tickets, bad = self.tickets.read_all()
        found = [Leftover(each.id, why, each) for each in tickets if (why := _gone(each)) is not None]
        return found + [Leftover(each.path.name, each.problem, None) for each in bad]

    async def sweep(self, provider: Provider) -> Swept:
        """Remove the leftovers that `provider` can remove."""
        removed: list[str] = []
        remaining: list[Leftover] = []
        for each in self.leftovers():
            if each.ticket is None or each.ticket.provider != provider.name:
                remaining.append(each)
                continue
            try:
                await self.remove(provider, each.ticket)
                removed.append(each.id)
            except SandboxRemains as error:
                remaining.append(Leftover(each.id, str(error), each.ticket))
        return Swept(tuple(removed), tuple(remaining))


class _ProviderError(RollbookError):
    """Something that is no error of ours escaped a provider."""


def _gone(ticket: Ticket) -> str | None:
    """Why the sandbox should not be there; None: it may."""
    if ticket.failed is not None:
        return ticket.failed
    if ticket.boot != boot_id():
        return "made before this machine started"
    if ticket.space == pid_space() and not is_running(ticket.owner, ticket.owner_started):
        return f"its owner, process {ticket.owner}, is dead"
    return "expired" if ticket.expires < since_boot() else None


class _Opened:
    """A sandbox with its ticket: it is kept alive until it is closed."""

    def __init__(self, lifecycle: SandboxLifecycle, provider: Provider, ticket: Ticket, inside: Sandbox) -> None:
        self._lifecycle, self._provider, self._ticket, self._inside = lifecycle, provider, ticket, inside
        self._closed = False
        self._timer = asyncio.get_running_loop().call_later(lifecycle.lifetime / 3, self._move_on)

    def _move_on(self) -> None:
        self._ticket = msgspec.structs.replace(self._ticket, expires=since_boot() + self._lifecycle.lifetime)
        with suppress(OSError):  # a full disk: the ticket that is there has two more thirds of its time
            self._lifecycle.tickets.write(self._ticket)
        self._timer = asyncio.get_running_loop().call_later(self._lifecycle.lifetime / 3, self._move_on)

    def _open(self) -> Sandbox:
        if self._closed:
            raise RolloutFailure(Reason.INTERNAL, f"sandbox {self._ticket.id} is used after it was closed")
        return self._inside

    @property
    def info(self) -> SandboxInfo:
        return self._inside.info

    async def exec(
        self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = 10.0, limits: SandboxLimits | None = None
    ) -> ExecResult:
        return await self._open().exec(argv, stdin=stdin, seconds=seconds, limits=limits)

    async def write(self, path: str, data: bytes) -> None:
        await self._open().write(path, data)

    async def read(self, path: str, limit: int) -> bytes:
        return await self._open().read(path, limit)

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._timer.cancel()
        await self._lifecycle.remove(self._provider, self._ticket)
