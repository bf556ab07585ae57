"""Sandboxes in Linux namespaces, by ``bwrap`` or ``unshare``.

What they leave on the host: processes that bear the ticket's label, and the control groups that it names. The workspace
is memory of the holder's mount namespace and goes with it; no mount of it is ever seen by the host.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import secrets
import signal
import subprocess
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rollbook.envs.finishing import to_its_end
from rollbook.envs.foreign import one_line
from rollbook.envs.sandbox.causes import Evidence, exec_result, lost
from rollbook.envs.sandbox.child import Child, check_command, end_group, ended_by_itself, spawn
from rollbook.envs.sandbox.files import parts_of, read_beneath
from rollbook.envs.sandbox.groups import Counts, counts, find_parents, make_groups
from rollbook.envs.sandbox.host_processes import end_labelled
from rollbook.envs.sandbox.launch import HELD_WORKSPACE, Host, Launch, Rights, limited
from rollbook.envs.sandbox.protocol import FileRefused, Sandbox, SandboxSpec, Ticket
from rollbook.envs.sandbox.removal import LOCAL, PATIENCE, remove_local
from rollbook.envs.sandbox.result import ExecResult, Kind, SandboxInfo, SandboxLimits
from rollbook.envs.sandbox.syscalls import key_filter
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["Namespaces", "this_host"]

READY_SECONDS = 20.0
"""How long the holder may take to make the workspace."""
SLACK = 1 << 14
"""Bytes of a launcher's own messages that are kept beside the command's output."""
PATH = "/usr/sbin:/usr/bin:/sbin:/bin:/usr/local/bin"
WRITE = 'mkdir -p -- "$(dirname -- "$1")" && if [ -p "$1" ]; then exit 1; else cat > "$1"; fi'
"""Not into a pipe: nobody may ever read from it."""
_TOP = ("/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32")


def this_host() -> Host:
    """What launching needs to know of this machine."""
    paths = [path for path in map(Path, _TOP) if path.exists() or path.is_symlink()]
    links = tuple((str(path), os.readlink(path)) for path in paths if path.is_symlink())
    folders = tuple(str(path) for path in paths if not path.is_symlink())
    return Host(os.geteuid() == 0, links, folders, key_filter(os.uname().machine))


def environment(label: str) -> dict[str, str]:
    """Of the processes that start something in a sandbox."""
    name, _, value = label.partition("=")
    return {name: value, "PATH": PATH}


class Namespaces:
    """Makes sandboxes of one kind, with one kind of rights."""

    name = LOCAL

    def __init__(self, kind: Kind, rights: Rights, host: Host, parents: Sequence[Path] | None = None) -> None:
        """`parents`: where control groups are made; None: where they can be."""
        self.launch = Launch(kind, rights, host)
        self._parents = find_parents() if parents is None else tuple(parents)
        self._holders: dict[str, subprocess.Popen[bytes]] = {}
        self._made: dict[str, _Inside] = {}

    @property
    def kind(self) -> Kind:
        return self.launch.kind

    def plan(self, name: str) -> tuple[tuple[str, ...], bool]:
        return tuple(str(parent / f"rollbook-{name}") for parent in self._parents), False

    async def create(self, ticket: Ticket, spec: SandboxSpec) -> None:
        try:
            make_groups(ticket.groups, spec.limits)
            argv = self.launch.holder(spec.limits, spec.readonly)
            self._holders[ticket.id] = spawn(argv, environment(ticket.label))
        except FileNotFoundError as error:
            raise RolloutFailure(Reason.ENV_SETUP, f"sandbox: there is no {error.filename}") from error
        except OSError as error:
            raise lost(f"the sandbox could not be started: {error}") from error

    async def ready(self, ticket: Ticket, spec: SandboxSpec) -> Sandbox:
        holder = self._holders[ticket.id]
        assert holder.stdout is not None
        assert holder.stderr is not None
        try:
            async with asyncio.timeout(READY_SECONDS):
                await _readable(holder.stdout.fileno())
        except TimeoutError:
            raise lost(f"the sandbox was not ready within {READY_SECONDS:g} s") from None
        if holder.stdout.read(6) != b"ready\n":
            said = holder.stderr.read(SLACK) or b""
            raise RolloutFailure(Reason.ENV_SETUP, f"sandbox ({self.kind}): {one_line(said.decode(errors='replace'))}")
        holder.stdout.close()
        holder.stderr.close()
        inside = _Inside(self.launch, holder, ticket, spec)
        self._made[ticket.id] = inside
        return inside

    async def remove(self, ticket: Ticket) -> None:
        await to_its_end(asyncio.to_thread(self._remove, ticket))

    def _remove(self, ticket: Ticket) -> None:
        holder, made = self._holders.pop(ticket.id, None), self._made.pop(ticket.id, None)
        if made is not None:
            os.close(made.folder)
        if holder is not None:
            _end(holder)
        # every command of ours that is not running any more took all that it had started with it
        remove_local(ticket, scan=made is None or made.running > 0)


def _end(holder: subprocess.Popen[bytes]) -> None:
    if holder.poll() is None:
        end_group(holder)
    holder.wait()
    for pipe in (holder.stdin, holder.stdout, holder.stderr):
        if pipe is not None:
            pipe.close()


@contextmanager
def _readable_once(data: bytes | None) -> Generator[int | None]:
    """A descriptor from which a child reads `data`, less than a pipe holds."""
    if data is None:
        yield None
        return
    ours, theirs = os.pipe()
    try:
        with open(theirs, "wb", buffering=0) as file:
            file.write(data)
        yield ours
    finally:
        os.close(ours)


async def _readable(fd: int) -> None:
    loop = asyncio.get_running_loop()
    found = asyncio.Event()
    loop.add_reader(fd, found.set)
    try:
        await found.wait()
    finally:
        loop.remove_reader(fd)


class _Inside:
    """A sandbox that is ready."""

    def __init__(self, launch: Launch, holder: subprocess.Popen[bytes], ticket: Ticket, spec: SandboxSpec) -> None:
        self._launch, self._holder, self._ticket, self._spec = launch, holder, ticket, spec
        self._numbers = itertools.count(1)
        self.running = 0
        """Commands that have not ended."""
        try:
            place = f"/proc/{holder.pid}/root{HELD_WORKSPACE}"
            self.folder = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise lost(f"the workspace is gone: {error}") from error

    @property
    def info(self) -> SandboxInfo:
        return SandboxInfo(
            self._ticket.id,
            self._launch.kind,
            isolates=True,
            network=self._spec.network,
            groups=bool(self._ticket.groups),
        )

    async def exec(
        self, argv: Sequence[str], *, stdin: bytes = b"", seconds: float = 10.0, limits: SandboxLimits | None = None
    ) -> ExecResult:
        check_command(argv)
        limits = self._spec.limits if limits is None else limits
        if self._holder.poll() is not None:
            raise lost(f"the holder of its workspace ended with code {self._holder.returncode}")
        label, mark = f"{self._ticket.label}/{next(self._numbers)}", secrets.token_hex(16)
        before = counts(self._ticket.groups)
        self.running += 1
        try:
            process = self._start(argv, mark, label, limits)
            child = Child(
                stdin=stdin, keep=limits.output + SLACK, flood=limits.flood, kill=lambda process: _kill(process, label)
            )
            ended = await child.run(process, seconds)
        except OSError as error:
            raise lost(f"a command could not be started: {error}") from error
        finally:
            self.running -= 1
        return exec_result(ended, f"{mark}\n".encode(), self._evidence(before), limits)

    def _start(self, argv: Sequence[str], mark: str, label: str, limits: SandboxLimits) -> subprocess.Popen[bytes]:
        data = self._launch.host.sieve if self._launch.kind is Kind.BUBBLEWRAP else None
        with _readable_once(data) as sieve:
            line = self._launch.command(
                argv,
                holder=self._holder.pid,
                mark=mark,
                limits=limited(limits, bool(self._ticket.groups)),
                groups=self._ticket.groups,
                network=self._spec.network,
                readonly=self._spec.readonly,
                sieve=sieve,
            )
            return spawn(line, environment(label), handed=() if sieve is None else (sieve,))

    def _evidence(self, before: Counts) -> Evidence:
        after, room = counts(self._ticket.groups), os.fstatvfs(self.folder)
        return Evidence(
            Counts(after.killed - before.killed, after.refused - before.refused),
            disk_full=room.f_bavail == 0 or room.f_favail == 0,
            relayed=self._launch.kind is Kind.UNSHARE,
        )

    async def write(self, path: str, data: bytes) -> None:
        parts_of(path)
        done = await self.exec(["/bin/sh", "-c", WRITE, "sh", f"./{path}"], stdin=data, seconds=60.0)
        if not done.ok:
            raise FileRefused(f"{path!r}: {done.describe()}: {one_line(done.stderr.decode(errors='replace'))}")

    async def read(self, path: str, limit: int) -> bytes:
        # a descriptor of its own: the sandbox may be closed meanwhile, and the number be another sandbox's
        folder = os.dup(self.folder)
        return await to_its_end(asyncio.to_thread(_read, folder, path, limit))

    async def close(self) -> None:
        """`SandboxLifecycle` removes it."""


def _read(folder: int, path: str, limit: int) -> bytes:
    try:
        return read_beneath(folder, path, limit)
    finally:
        os.close(folder)


def _kill(process: subprocess.Popen[bytes], label: str) -> None:
    """End all of a command. One that ended by itself has taken all that it started with it."""
    if ended_by_itself(process):
        return
    end_labelled(label, PATIENCE)
    if os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        process.send_signal(signal.SIGKILL)
