"""SIGKILL a process that writes a run, at random moments; then check that nothing which it had acknowledged is gone.

    python tests/slow/kill_storm.py [KILLS] [SEED]        default 200 kills; prints a JSON report; exit code 1 on loss

One run lives through all kills: each process first repairs and seals what the last one left in flight, and says each
step on its standard output *after* the writer returned.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

# the repository is not a package that is installed:
from rollbook.store import RunReader, RunWriter, StoreOptions  # noqa: E402
from rollbook.trace import Reason  # noqa: E402
from tests.store.made import add_turn, finish, new_trace  # noqa: E402

OPTIONS = StoreOptions(segment_bytes=200_000, journal_bytes=60_000)
IN_FLIGHT = 12


def write_until_killed(folder: str, life: int) -> None:
    """The victim: repair, then begin, extend and seal rollouts without end, saying each step that is durable."""
    writer = RunWriter.open(folder, options=OPTIONS)
    say("cut", writer.recovery.bytes_cut)
    for rollout in writer.seal_interrupted():
        say("interrupted", rollout)
    random_ = random.Random(life)
    running = []
    say("ready", life)
    for number in range(10**9):
        if len(running) < IN_FLIGHT:
            trace = new_trace(f"life{life}-{number}", number)
            running.append(trace)
            writer.begin(trace)
        else:
            trace = random_.choice(running)
            if random_.random() < 0.2:
                running.remove(trace)
                writer.seal(finish(trace))
                say("sealed", trace.id)
                continue
            add_turn(trace, number, tokens=random_.choice((4, 40, 400)))
            writer.turn(trace)
        say("stored", f"{trace.id} {len(trace.graph)}")


def say(word: str, value: object) -> None:
    """One line, in one write."""
    os.write(1, f"{word} {value}\n".encode())


@dataclass
class Storm:
    """What all processes acknowledged, and what was found wrong."""

    folder: Path
    sealed: set[str] = field(default_factory=set[str])
    nodes: dict[str, int] = field(default_factory=dict[str, int])
    """Rollouts begun and not seen sealed: how many nodes were durable."""
    cut: list[int] = field(default_factory=list[int])
    steps: int = 0
    problems: list[str] = field(default_factory=list[str])

    def kill_once(self, life: int, seconds: float) -> None:
        """Let one process write for a while behind its start, kill it, and read what it said."""
        command = [sys.executable, "-m", "tests.slow.kill_storm", "--victim", str(self.folder), str(life)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=ROOT, text=True) as victim:
            assert victim.stdout is not None
            lines: list[str] = []
            for line in victim.stdout:
                lines.append(line)
                if line.startswith("ready"):
                    break
            time.sleep(seconds)
            victim.kill()
            lines += victim.stdout.readlines()
        if not any(line.startswith("ready") for line in lines):
            self.problems.append(f"life {life} did not start")
        for line in lines:
            if line.endswith("\n"):
                self._hear(line.strip())

    def _hear(self, line: str) -> None:
        word, _, value = line.partition(" ")
        self.steps += 1
        match word:
            case "cut":
                self.cut.append(int(value))
            case "stored":
                rollout, _, nodes = value.partition(" ")
                self.nodes[rollout] = int(nodes)
            case "sealed":
                self.sealed.add(value)
                self.nodes.pop(value, None)
            case _:
                pass

    def check(self) -> None:
        """Open the run a last time and compare it with what was acknowledged."""
        with RunWriter.open(self.folder, options=OPTIONS) as writer:
            self.cut.append(writer.recovery.bytes_cut)
            writer.seal_interrupted()
        reader = RunReader(self.folder, strict=True)
        found = {trace.id: trace for trace in reader.traces()}
        rows = Counter(row.rollout for row in reader.summaries())
        self.problems += [f"{rollout} stands {count} times" for rollout, count in rows.items() if count > 1]
        self.problems += [f"sealed {rollout} is gone" for rollout in self.sealed - found.keys()]
        for rollout, nodes in self.nodes.items():
            trace = found.get(rollout)
            if trace is None:
                self.problems.append(f"{rollout} with {nodes} nodes is gone")
            elif len(trace.graph) < nodes:
                self.problems.append(f"{rollout} has {len(trace.graph)} of {nodes} nodes")
        self.problems += [
            f"{rollout} ended {trace.ending}"
            for rollout, trace in found.items()
            if rollout in self.sealed and (trace.ending is None or trace.ending.reason is not Reason.FINAL_ANSWER)
        ]


def run_storm(folder: Path, kills: int, seed: int) -> Storm:
    """Kill `kills` processes, one after the other, at random moments."""
    RunWriter.create(folder).close()
    storm = Storm(folder)
    moments = random.Random(seed)
    for life in range(kills):
        storm.kill_once(life, moments.uniform(0.0, 0.15))
    storm.check()
    return storm


def main() -> int:
    """The entry points of the storm and of its victims."""
    if sys.argv[1:2] == ["--victim"]:
        write_until_killed(sys.argv[2], int(sys.argv[3]))
        return 0
    kills, seed = (int(sys.argv[1]) if len(sys.argv) > 1 else 200), (int(sys.argv[2]) if len(sys.argv) > 2 else 0)
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        storm = run_storm(Path(folder) / "run", kills, seed)
        report = {
            "kills": kills,
            "seed": seed,
            "acknowledged_steps": storm.steps,
            "sealed": len(storm.sealed),
            "in_flight_at_a_kill": len(storm.nodes),
            "torn_tails": sum(bytes_cut > 0 for bytes_cut in storm.cut),
            "bytes_cut": sum(storm.cut),
            "problems": storm.problems,
            "seconds": round(time.monotonic() - started, 1),
        }
    print(json.dumps(report, indent=2))  # noqa: T201 - the report is the output
    return 1 if storm.problems else 0


if __name__ == "__main__":
    sys.exit(main())
