"""The storm itself: processes to kill, and what may stay behind of them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from rollbook.policy.testing import Fault, FaultPlan
from rollbook.run import RunConfig
from tests.storm.log import CHECK

__all__ = ["MARK", "Storm", "every_fault", "marked", "undisturbed"]

WORKER = "rollbook.run.worker"
MARK = "ROLLBOOK_STORM"


def undisturbed() -> dict[str, Sequence[Fault | None]]:
    """For a plan: no fault strikes the questions that a run asks before it begins."""
    return {f"{CHECK}{each}": [None] * 8 for each in ("", *(f"-{number}" for number in range(1, 20)))}


def every_fault(seed: int, *, slow: float) -> FaultPlan:
    """Each fault strikes a hundredth of all requests, those in transit more. `slow`: seconds of a late first byte."""
    rates = {**dict.fromkeys(Fault, 0.01), Fault.SERVER_ERROR: 0.03, Fault.RESET: 0.03, Fault.TRUNCATED: 0.03}
    return FaultPlan(seed=seed, rates=rates, retry_after=0.1, slow=slow, sessions=undisturbed())


@dataclass
class Storm:
    """A run in lives of its own, whose processes are found by a mark in their surroundings."""

    folder: Path
    config: RunConfig
    temporary: Path
    """Where its processes put what is temporary."""
    workers: int = 2
    concurrency: int = 256
    told: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Rollout and reason of each attempt that a life said had ended."""
    began: list[float] = field(default_factory=list[float])
    """When each life began."""

    def live(self, *, kill_worker_at: int | None = None, kill_at: int | None = None) -> int:
        """One life; returns its exit code. Once so many attempts have ended, a worker or the parent is killed."""
        resume = ["resume"] if (self.folder / "run.json").exists() else []
        config = msgspec.json.encode(self.config).decode()
        command = [sys.executable, "-m", "tests.storm.life", str(self.folder), config]
        arguments = [str(self.workers), str(self.concurrency), *resume]
        self.temporary.mkdir(exist_ok=True)
        surroundings = {**os.environ, "TMPDIR": str(self.temporary), MARK: str(self.folder)}
        ended = 0
        self.began.append(time.time())
        with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, env=surroundings) as process:
            assert process.stdout is not None
            for line in process.stdout:
                if not line.endswith("\n"):
                    break
                rollout, reason = line.split()
                self.told.append((rollout, reason))
                ended += 1
                if ended == kill_worker_at:
                    os.kill(self.workers_of(process.pid)[0], signal.SIGKILL)
                if ended == kill_at:
                    process.kill()
        return process.returncode

    def workers_of(self, parent: int) -> list[int]:
        """Its worker processes."""
        return [pid for pid in self.processes() if _parent(pid) == parent and WORKER.encode() in _read(pid, "cmdline")]

    def processes(self) -> list[int]:
        """All that run with the mark of this storm."""
        return marked(self.folder)

    def wait_for_orphans(self, seconds: float) -> Sequence[int]:
        """Those that are still there after so many seconds."""
        end = time.monotonic() + seconds
        while (left := self.processes()) and time.monotonic() < end:
            time.sleep(0.05)
        return left


def marked(folder: Path) -> list[int]:
    """Processes whose surroundings bear the mark of a run."""
    mark = f"{MARK}={folder}\0".encode()
    pids = [int(each.name) for each in Path("/proc").iterdir() if each.name.isdecimal()]
    return [pid for pid in pids if mark in _read(pid, "environ")]


def _read(pid: int, name: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/{name}").read_bytes()
    except OSError:
        return b""


def _parent(pid: int) -> int | None:
    stat = _read(pid, "stat").rpartition(b")")[2].split()
    return int(stat[1]) if stat else None
