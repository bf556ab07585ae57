"""One process of ours: started, fed, read within bounds, and waited for.

Rules: it leads a session and a process group of its own; at most so many bytes of each stream are kept and the rest is
counted; nothing waits for the end of a stream, for a grandchild may hold it open; when `run` is left in any way the
process has been waited for and every pipe is closed.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from rollbook.envs.sandbox.files import encodable
from rollbook.envs.sandbox.protocol import CommandRefused
from rollbook.envs.sandbox.shield import to_the_end

__all__ = ["Child", "Ended", "check_command", "end_group", "ended_by_itself", "spawn"]

CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Ended:
    """How the process ended."""

    code: int
    """As `subprocess` has it: negative for a signal."""
    stdout: bytes
    stderr: bytes
    stdout_total: int
    """Bytes that were written, kept or not."""
    stderr_total: int
    late: bool
    """It was killed at its deadline."""
    flooded: bool
    """It was killed for its output."""
    seconds: float
    cpu: float = 0.0
    """Seconds of processor time, its own and that of all below it that was waited for."""


MAX_ARGUMENT = 128 * 1024 - 1
MAX_ARGUMENTS = 1 << 20
"""Bytes of one argument, which is Linux's own limit, and of all, which leaves room for a launcher's own."""


def check_command(argv: Sequence[str]) -> None:
    """Raises `CommandRefused` for what cannot be started, so that it is never taken for a fault of the host."""
    if not argv or not argv[0]:
        raise CommandRefused("the command is empty")
    if any("\0" in each or not encodable(each) for each in argv):
        raise CommandRefused("an argument holds a character that no argument can hold; pass it as input")
    sizes = [len(os.fsencode(each)) for each in argv]
    if max(sizes) > MAX_ARGUMENT or sum(sizes) + 9 * len(sizes) > min(MAX_ARGUMENTS, os.sysconf("SC_ARG_MAX") // 2):
        raise CommandRefused(f"the arguments are too long ({sum(sizes)} bytes); pass them as input")


def spawn(
    argv: Sequence[str], env: Mapping[str, str], cwd: str = "/", handed: Sequence[int] = ()
) -> subprocess.Popen[bytes]:
    """Start a process with three pipes and the descriptors `handed`, at the head of a session of its own. Raises
    `OSError`."""
    pipe = subprocess.PIPE
    return subprocess.Popen(  # noqa: S603 (no shell; what is run is what was asked)
        list(argv),
        bufsize=0,
        stdin=pipe,
        stdout=pipe,
        stderr=pipe,
        env=dict(env),
        cwd=cwd,
        start_new_session=True,
        pass_fds=handed,
    )


def ended_by_itself(process: subprocess.Popen[bytes]) -> bool:
    """True for one that has left with a status, and so has taken along what it kept; it must not have been waited
    for."""
    seen = os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    return seen is not None and seen.si_code == os.CLD_EXITED


def end_group(process: subprocess.Popen[bytes]) -> None:
    """SIGKILL for the process and its group; it must not have been waited for."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # the leader is a zombie, or changed its user: it is still ours
        process.kill()


@dataclass(slots=True)
class _Stream:
    fd: int
    keep: int
    kept: bytearray = field(default_factory=bytearray)
    total: int = 0
    open: bool = True

    def read(self) -> int:
        """Take what is there; the count of bytes, 0 at the end or where nothing is there."""
        try:
            data = os.read(self.fd, CHUNK)
        except BlockingIOError:
            return 0
        self.open = bool(data)
        self.total += len(data)
        self.kept += data[: max(0, self.keep - len(self.kept))]
        return len(data)

    def drain(self, limit: int) -> None:
        """Take what was written before the end, of a stream that somebody may go on writing to."""
        while self.open and self.total <= limit and self.read():
            pass


class Child:
    """Runs one process to its end."""

    def __init__(self, *, stdin: bytes, keep: int, flood: int, kill: Callable[[subprocess.Popen[bytes]], None]) -> None:
        """`keep`: bytes kept of each stream. `flood`: bytes of both at which it is killed. `kill` ends all that the
        process started; it may be called more than once, and is called before the process is waited for."""
        self._stdin = memoryview(stdin)
        self._keep, self._flood = keep, flood
        self._kill = kill
        self._done = asyncio.Event()
        self._flooded = False

    async def run(self, process: subprocess.Popen[bytes], seconds: float) -> Ended:
        """Wait for the process; kill it after `seconds`, or when this is cancelled."""
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        began, late = time.monotonic(), False
        loop = asyncio.get_running_loop()
        try:
            pidfd = os.pidfd_open(process.pid)
        except OSError:
            await self._end(process)
            _close_pipes(process)
            raise
        streams = [_Stream(each.fileno(), self._keep) for each in (process.stdout, process.stderr)]
        source = process.stdin.fileno()
        for fd in (source, *(each.fd for each in streams)):
            os.set_blocking(fd, False)
        try:
            loop.add_reader(pidfd, self._done.set)
            for each in streams:
                loop.add_reader(each.fd, self._readable, loop, each, streams)
            loop.add_writer(source, self._writable, loop, process)
            try:
                async with asyncio.timeout(seconds):
                    await self._done.wait()
            except TimeoutError:
                late = True
        finally:
            for each in streams:
                loop.remove_reader(each.fd)
            if not process.stdin.closed:
                loop.remove_writer(source)
            loop.remove_reader(pidfd)
            try:
                code, cpu = await self._end(process)
            finally:
                for each in streams:
                    each.drain(2 * self._flood)
                os.close(pidfd)
                _close_pipes(process)
        out, err = streams
        return Ended(
            code=code,
            stdout=bytes(out.kept),
            stderr=bytes(err.kept),
            stdout_total=out.total,
            stderr_total=err.total,
            late=late,
            flooded=self._flooded,
            seconds=time.monotonic() - began,
            cpu=cpu,
        )

    async def _end(self, process: subprocess.Popen[bytes]) -> tuple[int, float]:
        """End what is left of it and take its exit code and processor time; off the loop where something has to be
        searched or waited for."""
        if self._done.is_set() and not self._flooded and ended_by_itself(process):
            self._kill(process)
            return _waited(process)

        def end() -> tuple[int, float]:
            self._kill(process)
            return _waited(process)

        return await to_the_end(asyncio.to_thread(end))

    def _readable(self, loop: asyncio.AbstractEventLoop, stream: _Stream, both: Sequence[_Stream]) -> None:
        stream.read()
        if not stream.open:
            loop.remove_reader(stream.fd)
        if sum(each.total for each in both) > self._flood and not self._flooded:
            self._flooded = True
            self._done.set()

    def _writable(self, loop: asyncio.AbstractEventLoop, process: subprocess.Popen[bytes]) -> None:
        assert process.stdin is not None
        fd = process.stdin.fileno()
        try:
            self._stdin = self._stdin[os.write(fd, self._stdin[:CHUNK]) :] if self._stdin else self._stdin
        except BlockingIOError:
            return
        except (BrokenPipeError, ConnectionResetError):
            self._stdin = self._stdin[:0]
        if not self._stdin:
            loop.remove_writer(fd)
            process.stdin.close()


def _waited(process: subprocess.Popen[bytes]) -> tuple[int, float]:
    """Exit code and processor time. `subprocess` itself does not tell the time."""
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    return process.returncode, usage.ru_utime + usage.ru_stime


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe is not None:
            pipe.close()
