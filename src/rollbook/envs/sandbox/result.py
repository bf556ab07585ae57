"""What a sandbox may use, and what one command in it came to.

Rule: every end of a command is the policy's own doing and says so by its `Cause`. A host that failed is no result at
all: it is a `RolloutFailure` (``sandbox_lost``), and it takes evidence (the launcher could not start, or died by
itself). What runs inside can end in any of the causes, but in no lost host.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec

from rollbook.errors import ConfigError

__all__ = ["Cause", "ExecResult", "Kind", "SandboxInfo", "SandboxLimits"]

MIB = 1 << 20


class Kind(StrEnum):
    """What keeps a sandbox apart from the host."""

    BUBBLEWRAP = "bubblewrap"
    """``bwrap``, in a mount namespace of its own."""
    UNSHARE = "unshare"
    """Namespaces by ``unshare`` of util-linux."""
    PLAIN = "plain"
    """Nothing: an ordinary process with limits. For code that is trusted."""


class Cause(StrEnum):
    """Why a command ended. All but ``exited`` with status 0 are failures of what ran."""

    EXITED = "exited"
    """By itself, with a status."""
    SIGNAL = "signal"
    """By a signal that nobody outside sent: a crash, or its own kill."""
    TIME = "time"
    """Killed: it ran longer than the seconds it had."""
    CPU = "cpu"
    """Killed by the limit of processor time."""
    MEMORY = "memory"
    """Something of it was killed for memory."""
    PROCESSES = "processes"
    """It failed, and had asked for more processes than allowed."""
    DISK = "disk"
    """It failed with the workspace full, or wrote a file over the limit."""
    OUTPUT = "output"
    """Killed: it flooded its output."""


class SandboxLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Bounds of one sandbox. Raises `ConfigError` where one is not positive."""

    memory: int = 512 * MIB
    """Bytes of all its processes together where control groups can be used; of each process elsewhere."""
    processes: int = 64
    """Processes and threads at once."""
    disk: int = 64 * MIB
    """Bytes of the workspace, ``/tmp`` and ``/dev/shm`` together."""
    files: int = 4096
    """Files and folders in them."""
    cpu: int = 60
    """Seconds of processor time of each process."""
    output: int = MIB
    """Bytes kept of each of stdout and stderr; what comes after is thrown away and counted."""
    flood: int = 64 * MIB
    """Bytes of output, kept or not, at which the command is killed."""
    open_files: int = 256
    """Open files of each process."""

    def __post_init__(self) -> None:
        for name, value in msgspec.structs.asdict(self).items():
            if value < 1:
                raise ConfigError(f"SandboxLimits: {name} must be at least 1, not {value}")


class ExecResult(msgspec.Struct, frozen=True):
    """How one command ended. Output is bytes: text is a view of them."""

    cause: Cause
    status: int | None
    """The exit status; None where a signal ended it."""
    signal: int | None
    """The signal that ended it; None: none. A status of 128 + n is read as signal n, as shells write it."""
    stdout: bytes
    """The first bytes, at most ``SandboxLimits.output``."""
    stderr: bytes
    stdout_lost: int
    """Bytes of stdout that were thrown away."""
    stderr_lost: int
    seconds: float
    """Wall time, start included."""
    cpu: float = 0.0
    """Processor time, start included; of a command that was killed, what is known of it."""

    @property
    def ok(self) -> bool:
        """True for a command that ended by itself with status 0."""
        return self.cause is Cause.EXITED and self.status == 0

    @property
    def cut(self) -> bool:
        """True where output was thrown away."""
        return self.stdout_lost + self.stderr_lost > 0

    def describe(self) -> str:
        """One line for the policy and for people."""
        match self.cause:
            case Cause.EXITED:
                return f"exit status {self.status}"
            case Cause.SIGNAL:
                return f"killed by signal {self.signal}"
            case Cause.TIME:
                return f"killed after {self.seconds:.1f} s: out of time"
            case cause:
                return f"{_OVER[cause]} ({'killed' if self.status is None else f'exit status {self.status}'})"


_OVER = {
    Cause.CPU: "out of processor time",
    Cause.MEMORY: "out of memory",
    Cause.PROCESSES: "too many processes",
    Cause.DISK: "the disk is full",
    Cause.OUTPUT: "too much output",
}


class SandboxInfo(msgspec.Struct, frozen=True):
    """What a sandbox is made of, for records and reports."""

    id: str
    kind: Kind
    isolates: bool
    """False: what runs in it sees and can change whatever its user can."""
    network: bool
    """True where it can reach the network."""
    groups: bool
    """True where memory and processes are bounded for the sandbox as a whole, by control groups."""
