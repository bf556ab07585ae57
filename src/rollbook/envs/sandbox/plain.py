"""A sandbox that is none: an ordinary process in a folder of its own, with limits of single processes.

It sees the host, its files and its network, as its user does. It is for code that is trusted, on machines where
nothing else works, and it is never chosen by itself.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import subprocess
import warnings
from collections.abc import Sequence
from pathlib import Path

from rollbook.envs.finishing import to_its_end
from rollbook.envs.sandbox.causes import Evidence, exec_result, lost
from rollbook.envs.sandbox.child import Child, check_command, end_group, spawn
from rollbook.envs.sandbox.files import parts_of, read_beneath
from rollbook.envs.sandbox.host_processes import end_labelled
from rollbook.envs.sandbox.launch import ENV, limited
from rollbook.envs.sandbox.namespaces import PATH
from rollbook.envs.sandbox.protocol import FileRefused, Sandbox, SandboxSpec, Ticket
from rollbook.envs.sandbox.removal import LOCAL, PATIENCE, remove_local
from rollbook.envs.sandbox.result import ExecResult, Kind, SandboxInfo, SandboxLimits

__all__ = ["NotIsolated", "Plain"]


class NotIsolated(UserWarning):
    """A sandbox that isolates nothing was asked for."""


class Plain:
    """Makes plain ones."""

    name = LOCAL
    kind = Kind.PLAIN

    def plan(self, name: str) -> tuple[tuple[str, ...], bool]:
        del name
        return (), True

    async def create(self, ticket: Ticket, spec: SandboxSpec) -> None:
        del spec
        assert ticket.workspace is not None
        warnings.warn(
            f"sandbox {ticket.id} is plain: it isolates nothing. Code in it reads and changes what this user can, and "
            "reaches the network",
            NotIsolated,
            stacklevel=2,
        )
        try:
            os.mkdir(ticket.workspace, 0o700)
        except OSError as error:
            raise lost(f"no workspace: {error}") from error

    async def ready(self, ticket: Ticket, spec: SandboxSpec) -> Sandbox:
        return _Folder(ticket, spec)

    async def remove(self, ticket: Ticket) -> None:
        await to_its_end(asyncio.to_thread(remove_local, ticket))


class _Folder:
    """A folder in which commands run."""

    def __init__(self, ticket: Ticket, spec: SandboxSpec) -> None:
        assert ticket.workspace is not None
        self._ticket, self._spec = ticket, spec
        self._place = ticket.workspace
        self._numbers = itertools.count(1)

    @property
    def info(self) -> SandboxInfo:
        return SandboxInfo(self._ticket.id, Kind.PLAIN, isolates=False, network=True, groups=False)

    async def exec(
        self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = 10.0, limits: SandboxLimits | None = None
    ) -> ExecResult:
        check_command(argv)
        limits = self._spec.limits if limits is None else limits
        label = f"{self._ticket.label}/{next(self._numbers)}"
        name, _, value = label.partition("=")
        env = {**ENV, "PATH": f"{ENV['PATH']}:{PATH}", "HOME": self._place, "TMPDIR": self._place, name: value}
        try:
            process = spawn([*limited(limits, grouped=False), *argv], env, self._place)
            child = Child(
                stdin=stdin, keep=limits.output, flood=limits.flood, kill=lambda process: _kill(process, label)
            )
            ended = await child.run(process, seconds)
        except OSError as error:
            raise lost(f"a command could not be started: {error}") from error
        return exec_result(ended, b"", Evidence(), limits)

    async def write(self, path: str, data: bytes) -> None:
        await asyncio.to_thread(self._write, path, data)

    def _write(self, path: str, data: bytes) -> None:
        target = Path(self._place, *parts_of(path))
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
        except OSError as error:
            raise FileRefused(f"{path!r}: {error.strerror}") from error

    async def read(self, path: str, limit: int) -> bytes:
        return await asyncio.to_thread(self._read, path, limit)

    def _read(self, path: str, limit: int) -> bytes:
        folder = os.open(self._place, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            return read_beneath(folder, path, limit)
        finally:
            os.close(folder)

    async def close(self) -> None:
        """`SandboxLifecycle` removes it."""


def _kill(process: subprocess.Popen[bytes], label: str) -> None:
    """End the process group; where it did not end by itself also what has left the group."""
    running = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    end_group(process)
    if running:
        end_labelled(label, PATIENCE)
