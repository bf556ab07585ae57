"""A small run as a list of steps, and what must be found of it after any of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
from hypothesis import strategies as st

from rollbook.store import RunWriter, StoreOptions
from rollbook.trace import Trace
from tests.store.made import add_turn, content, finish, new_trace

SMALL = StoreOptions(segment_bytes=6_000, journal_bytes=4_000)
"""So small that segments and generations rotate within a few steps."""

Step = tuple[str, int]
"""What to do (``begin``, ``turn``, ``seal``) with which rollout."""


@dataclass
class Ledger:
    """What a run acknowledged."""

    running: dict[str, Trace] = field(default_factory=dict[str, Trace])
    stored: dict[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])
    """Running rollouts as they were at their last acknowledged step."""
    sealed: dict[str, tuple[bytes, ...]] = field(default_factory=dict[str, tuple[bytes, ...]])

    def step(self, writer: RunWriter, step: Step) -> None:
        """Do one step and note that it was acknowledged."""
        action, number = step
        rollout = f"r{number}"
        if action == "begin":
            self.running[rollout] = new_trace(rollout, number)
            writer.begin(self.running[rollout])
        trace = self.running[rollout]
        if action == "turn":
            if number % 2:  # what is known of a rollout only while it runs
                trace.head = msgspec.structs.replace(trace.head, tools_rendered=len(trace.graph) < 4)
            add_turn(trace, number, tokens=4)
            writer.turn(trace)
        if action == "seal":
            writer.seal(finish(self.running.pop(rollout)))
            del self.stored[rollout]
            self.sealed[rollout] = content(trace)
        else:
            self.stored[rollout] = content(trace)


@st.composite
def step_lists(draw: st.DrawFn, most: int = 25) -> list[Step]:
    """Any valid sequence of steps over several rollouts."""
    steps: list[Step] = []
    running: list[int] = []
    begun = 0
    for choice in draw(st.lists(st.integers(0, 9), max_size=most)):
        if not running or choice < 3:
            steps.append(("begin", begun))
            running.append(begun)
            begun += 1
        else:
            action = "seal" if choice == 9 else "turn"
            rollout = running.pop(0) if action == "seal" else running[choice % len(running)]
            steps.append((action, rollout))
    return steps


def write_run(folder: Path, steps: Sequence[Step], options: StoreOptions = SMALL) -> Ledger:
    """Do the steps in a new run and leave it as a dead process does: nothing closed, nothing sealed up."""
    ledger = Ledger()
    writer = RunWriter.create(folder, options=options, writer="w")
    for step in steps:
        ledger.step(writer, step)
    abandon(writer)
    return ledger


def abandon(writer: RunWriter) -> None:
    """Drop a writer as a kill would: files closed as they are, no footer, nothing cleaned up."""
    writer._lock.release()
