"""A fake engine in a process of its own: ``python -m tests.storm.engine PLAN FOLDER``; serves until its input ends.

PLAN is a `FaultPlan` as JSON, FOLDER a tokenizer. Replies follow from session and prompt alone: a prompt that ends with
the beginning of a reply gets the rest of it. So a killed and resumed run is answered as one that nobody killed.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec

from rollbook.policy.testing import Dialect, EngineShape, FakeEngine, FaultPlan, Latency
from rollbook.trace import Sampling
from tests.run.run_made import renderer
from tests.storm.log import CHECK

__all__ = ["member_of", "storm_engine"]

LATENCY = Latency(prefill=0.001, per_token=0.0005)


def member_of(session: str) -> int:
    """The member whose rollout a session is; 0 for the questions before a run."""
    return 0 if session.startswith(CHECK) else int(session.rpartition("-")[2].partition(".")[0])


@contextmanager
def storm_engine(plan: FaultPlan, folder: Path) -> Generator[str]:
    """The URL of a running one."""
    command = [sys.executable, "-m", "tests.storm.engine", msgspec.json.encode(plan).decode(), str(folder)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.communicate("")


def main(plan: str, folder: str) -> None:
    """Serve."""
    made = renderer(Path(folder))
    (stop,) = made.info.stop_ids
    replies = [[*made.encode(text * 3).tolist(), stop] for text in ("right ", "wrong ")]

    def says(prompt: Sequence[int], sampling: Sampling, session: str) -> Sequence[int]:
        reply = replies[member_of(session) % 2]
        said = (length for length in range(len(reply) - 1, 0, -1) if list(prompt[-length:]) == reply[:length])
        return reply[next(said, 0) :]

    faults, shape = msgspec.json.decode(plan, type=FaultPlan), EngineShape(stop_ids=(stop,))
    with FakeEngine(Dialect.VLLM, script=says, faults=faults, latency=LATENCY, shape=shape) as engine:
        sys.stdout.write(engine.url + "\n")
        sys.stdout.flush()
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
