"""What an end means, without running anything."""

from __future__ import annotations

import dataclasses

import pytest

from rollbook.envs.sandbox import Cause, SandboxLimits
from rollbook.envs.sandbox.causes import Evidence, exec_result
from rollbook.envs.sandbox.child import Ended
from rollbook.envs.sandbox.groups import Counts
from rollbook.trace.ending import Reason, RolloutFailure

MARK = b"0123\n"
LIMITS = SandboxLimits(output=8)


def ended(code: int = 0, stderr: bytes = MARK, *, late: bool = False, flooded: bool = False) -> Ended:
    return Ended(code, b"out", stderr, 3, len(stderr), late, flooded, 1.5)


@pytest.mark.parametrize(
    ("end", "evidence", "cause", "status", "signal"),
    [
        (ended(), Evidence(), Cause.EXITED, 0, None),
        (ended(3), Evidence(), Cause.EXITED, 3, None),
        (ended(128), Evidence(), Cause.EXITED, 128, None),
        (ended(139), Evidence(), Cause.SIGNAL, None, 11),
        (ended(255), Evidence(), Cause.EXITED, 255, None),
        (ended(-11), Evidence(relayed=True), Cause.SIGNAL, None, 11),
        (ended(152), Evidence(), Cause.CPU, None, 24),
        (ended(153), Evidence(), Cause.DISK, None, 25),
        (ended(1), Evidence(disk_full=True), Cause.DISK, 1, None),
        (ended(1), Evidence(Counts(refused=1)), Cause.PROCESSES, 1, None),
        (ended(137), Evidence(Counts(killed=1)), Cause.MEMORY, None, 9),
        (ended(1), Evidence(Counts(1, 1), disk_full=True), Cause.MEMORY, 1, None),
        (ended(-9), Evidence(Counts(killed=1), relayed=False), Cause.MEMORY, None, 9),
        (ended(0), Evidence(Counts(1, 1), disk_full=True), Cause.EXITED, 0, None),
        (ended(-9, late=True), Evidence(Counts(1, 1)), Cause.TIME, None, 9),
        (ended(-9, flooded=True), Evidence(Counts(1, 1)), Cause.OUTPUT, None, 9),
        (ended(1, b"no room"), Evidence(Counts(killed=1)), Cause.MEMORY, 1, None),
        (ended(1, b"cannot fork"), Evidence(Counts(refused=1)), Cause.PROCESSES, 1, None),
    ],
)
def test_causes(end: Ended, evidence: Evidence, cause: Cause, status: int | None, signal: int | None) -> None:
    found = exec_result(end, MARK, evidence, LIMITS)
    assert (found.cause, found.status, found.signal) == (cause, status, signal)
    assert found.ok is (status == 0)
    assert found.describe()


def test_who_catches_the_signal_of_the_processor_limit_is_still_out_of_processor_time() -> None:
    end = dataclasses.replace(ended(137), cpu=60.5)
    assert exec_result(end, MARK, Evidence(), LIMITS).cause is Cause.CPU
    assert exec_result(dataclasses.replace(end, cpu=40.0), MARK, Evidence(), LIMITS).cause is Cause.SIGNAL
    assert exec_result(end, MARK, Evidence(), LIMITS).cpu == 60.5


@pytest.mark.parametrize(
    ("end", "evidence", "says"),
    [
        (ended(1, b"bwrap: Can't make namespace"), Evidence(), "Can't make namespace"),
        (ended(125, b""), Evidence(), "exit code 125"),
        (ended(-9, b"", late=True), Evidence(), "did not start within 1.5 s"),
        (ended(-9), Evidence(relayed=False), "killed by signal 9"),
    ],
)
def test_a_lost_host_takes_evidence(end: Ended, evidence: Evidence, says: str) -> None:
    with pytest.raises(RolloutFailure, match=says) as caught:
        exec_result(end, MARK, evidence, LIMITS)
    assert caught.value.reason is Reason.SANDBOX_LOST


def test_the_launchers_words_are_not_the_commands() -> None:
    found = exec_result(ended(1, b"bwrap: hm\n" + MARK + b"mine" + MARK + b"more"), MARK, Evidence(), LIMITS)
    assert found.stderr == (b"mine" + MARK)[:8]
    assert found.stderr_lost == len(b"mine" + MARK + b"more") - 8
    assert (found.stdout, found.stdout_lost) == (b"out", 0)


def test_without_a_launcher_there_is_no_mark() -> None:
    found = exec_result(ended(0, b"all"), b"", Evidence(), LIMITS)
    assert (found.stderr, found.cause) == (b"all", Cause.EXITED)
