"""Opening a sandbox of the best kind that works here, and sweeping up after runs that were killed.

Order: bubblewrap, then ``unshare``; each first with a user namespace, then with root's own rights. A kind works where
a command has run in it; that is found out once in a process. A plain sandbox is opened only by its name.
"""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from rollbook.envs.sandbox.launch import OWN_PLACES, Rights
from rollbook.envs.sandbox.lifecycle import Leftover, SandboxLifecycle, Swept
from rollbook.envs.sandbox.namespaces import Namespaces, this_host
from rollbook.envs.sandbox.plain import Plain
from rollbook.envs.sandbox.protocol import Provider, Sandbox, SandboxSpec
from rollbook.envs.sandbox.result import Kind, SandboxLimits
from rollbook.envs.sandbox.tickets import default_folder
from rollbook.errors import UsageError
from rollbook.trace.ending import RolloutFailure

__all__ = ["leftovers", "open_sandbox", "sandbox", "sweep"]

DEFAULT_LIMITS = SandboxLimits()

_working: dict[Kind | None, Provider] = {}
"""By what was asked for: the provider that has been seen to work in this process."""
_swept: set[Path] = set()
"""Folders that this process has swept."""


async def open_sandbox(
    kind: Kind | str | None = None,
    *,
    limits: SandboxLimits = DEFAULT_LIMITS,
    network: bool = False,
    readonly: Sequence[str | Path] = (),
    folder: Path | None = None,
) -> Sandbox:
    """A sandbox; close it. The first one of a process sweeps the leftovers of dead ones.

    `kind`: None takes the best that isolates. `readonly`: further folders that are seen inside, at the same place.
    `folder`: where tickets lie; None: `default_folder`. Raises `UsageError` where no kind works, and `RolloutFailure`
    where one that works elsewhere failed.
    """
    _on_linux()
    wanted = _kind(kind)
    lifecycle = _lifecycle(folder)
    if lifecycle.tickets.folder not in _swept:
        _swept.add(lifecycle.tickets.folder)
        await lifecycle.sweep(Plain())
    return await lifecycle.open(await _provider(wanted, lifecycle), _spec(limits, network, readonly))


def _spec(limits: SandboxLimits, network: bool, readonly: Sequence[str | Path]) -> SandboxSpec:
    places = tuple(os.path.realpath(each) for each in readonly)
    for each in places:
        if each == "/" or f"/{each.split('/')[1]}" in OWN_PLACES:
            raise UsageError(f"readonly: {each} has a place of its own inside; give a folder that lies elsewhere")
    return SandboxSpec(limits, network, places)


@asynccontextmanager
async def sandbox(
    kind: Kind | str | None = None,
    *,
    limits: SandboxLimits = DEFAULT_LIMITS,
    network: bool = False,
    readonly: Sequence[str | Path] = (),
    folder: Path | None = None,
) -> AsyncGenerator[Sandbox]:
    """`open_sandbox` for an ``async with``."""
    opened = await open_sandbox(kind, limits=limits, network=network, readonly=readonly, folder=folder)
    try:
        yield opened
    finally:
        await opened.close()


async def sweep(folder: Path | None = None) -> Swept:
    """Remove what dead owners left on this machine."""
    _on_linux()
    return await _lifecycle(folder).sweep(Plain())


def leftovers(folder: Path | None = None) -> list[Leftover]:
    """Sandboxes that should be gone and are not, with the reason."""
    _on_linux()
    return _lifecycle(folder).leftovers()


def _lifecycle(folder: Path | None) -> SandboxLifecycle:
    return SandboxLifecycle(default_folder() if folder is None else folder)


def _on_linux() -> None:
    if sys.platform != "linux":
        raise UsageError(f"sandboxes need Linux, and this is {sys.platform}; run the environment on a Linux machine")


def _kind(kind: Kind | str | None) -> Kind | None:
    try:
        return None if kind is None else Kind(kind)
    except ValueError as error:
        raise UsageError(f"no sandbox of kind {kind!r}; there are: {', '.join(Kind)}") from error


def candidates(kind: Kind | None) -> list[Provider]:
    """What may work here, best first."""
    if kind is Kind.PLAIN:
        return [Plain()]
    host = this_host()
    rights = [Rights.USER, *([Rights.ROOT] if host.root else [])]
    kinds = [Kind.BUBBLEWRAP, Kind.UNSHARE] if kind is None else [kind]
    return [Namespaces(each, right, host) for each in kinds for right in rights]


async def _provider(kind: Kind | None, lifecycle: SandboxLifecycle) -> Provider:
    if kind is Kind.PLAIN:
        return Plain()
    if kind in _working:
        return _working[kind]
    return _working.setdefault(kind, await choose(candidates(kind), lifecycle))


async def choose(providers: Sequence[Provider], lifecycle: SandboxLifecycle) -> Provider:
    """The first in whose sandbox a command runs. Raises `UsageError` where there is none."""
    problems: list[str] = []
    for each in providers:
        problem = await _tried(each, lifecycle)
        if problem is None:
            return each
        problems.append(problem)
    raise UsageError(
        "no sandbox works here; install bubblewrap, allow user namespaces or run as root, or ask for kind 'plain', "
        f"which isolates nothing. Tried: {'; '.join(problems)}"
    )


async def _tried(provider: Provider, lifecycle: SandboxLifecycle) -> str | None:
    """What was wrong; None: a command ran."""
    try:
        opened = await lifecycle.open(provider, SandboxSpec(DEFAULT_LIMITS))
        try:
            done = await opened.exec(["true"])
        finally:
            await opened.close()
    except RolloutFailure as failure:
        return f"{provider.kind}: {failure.detail}"
    return None if done.ok else f"{provider.kind}: {done.describe()}"
