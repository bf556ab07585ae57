"""What the end of a launched command means. Pure.

Order of the rules: without the mark nothing of the command ran, so the launcher failed (a lost host, unless what ran
here before used up memory or processes); killed by us comes before anything that it died of; status 0 is a success
whatever it went through; then memory, processor time, disk and processes, by evidence from outside; then the rest.
"""

from __future__ import annotations

import signal
from dataclasses import dataclass

from rollbook.envs.foreign import one_line
from rollbook.envs.sandbox.child import Ended
from rollbook.envs.sandbox.groups import Counts
from rollbook.envs.sandbox.result import Cause, ExecResult, SandboxLimits
from rollbook.trace.ending import Reason, RolloutFailure

__all__ = ["Evidence", "exec_result", "lost"]

SIGNALS = 64
CPU_SHARE = 0.8
"""The kernel counts ticks for the limit and time for the report; on a busy machine they were seen 16 % apart."""
NOTHING = Counts()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What was seen from outside while the command ran."""

    counts: Counts = NOTHING
    """Events of its control groups; zeros without groups."""
    disk_full: bool = False
    """The workspace has no room left."""
    relayed: bool = True
    """The launcher dies of the signal that its child died of; False: its own death by a signal is news of the host."""


def lost(detail: object) -> RolloutFailure:
    """The host failed."""
    return RolloutFailure(Reason.SANDBOX_LOST, detail)


def exec_result(ended: Ended, mark: bytes, evidence: Evidence, limits: SandboxLimits) -> ExecResult:
    """The result of a command whose launcher writes `mark` to stderr first (empty: there is no launcher). Raises
    `RolloutFailure` (``sandbox_lost``)."""
    said, found, rest = ended.stderr.partition(mark) if mark else (b"", b"", ended.stderr)
    started = len(found) == len(mark)
    stderr = rest if started else b""
    total = ended.stderr_total - len(said) - len(found) if started else 0
    cause, status, number = _ending(ended, evidence, said.decode(errors="replace"), started)
    if cause is Cause.SIGNAL and number == signal.SIGKILL and ended.cpu >= CPU_SHARE * limits.cpu:
        cause = Cause.CPU  # it had caught the signal that comes first
    out, err = ended.stdout[: limits.output], stderr[: limits.output]
    lost_out, lost_err = ended.stdout_total - len(out), total - len(err)
    return ExecResult(cause, status, number, out, err, lost_out, lost_err, ended.seconds, ended.cpu)


def _ending(ended: Ended, evidence: Evidence, said: str, started: bool) -> tuple[Cause, int | None, int | None]:
    seen = evidence.counts
    if not started and not seen.killed and not seen.refused:
        why = f"the command did not start within {ended.seconds:.1f} s" if ended.late else "the launcher failed"
        raise lost(f"{why}: {one_line(said) or f'exit code {ended.code}'}")
    if ended.late or ended.flooded:
        return (Cause.TIME if ended.late else Cause.OUTPUT), None, int(signal.SIGKILL)
    if ended.code < 0 and not evidence.relayed and not seen.killed:
        raise lost(f"the launcher was killed by signal {-ended.code}")
    number = -ended.code if ended.code < 0 else ended.code - 128 if 0 < ended.code - 128 <= SIGNALS else None
    status = ended.code if number is None else None
    return _cause(status, number, evidence), status, number


def _cause(status: int | None, number: int | None, evidence: Evidence) -> Cause:
    if status == 0:
        return Cause.EXITED
    if evidence.counts.killed:
        return Cause.MEMORY
    if number == signal.SIGXCPU:
        return Cause.CPU
    if number == signal.SIGXFSZ or evidence.disk_full:
        return Cause.DISK
    if evidence.counts.refused:
        return Cause.PROCESSES
    return Cause.EXITED if number is None else Cause.SIGNAL
