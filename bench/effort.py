"""How much is measured: everything, or just enough to see that the benchmark runs."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FULL", "QUICK", "Effort"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Effort:
    """Counts. What a figure *is* does not depend on them, only how steady it is."""

    characters: int
    """Source text that is encoded."""
    long_rollouts: int
    """Rollouts of 400 turns."""
    posts: int
    """Requests of the bare client behind each long rollout."""
    in_flight: int
    """Rollouts held in memory at once."""
    stored: int
    """Rollouts in the store."""
    batch: int
    """Of these, so many make one try."""
    journalled: int
    """Rollouts that are stored turn by turn."""
    exported: int
    """Rollouts of the run that is exported."""
    export_repeats: int
    """Tries of each form."""
    reads: int
    """Traces read one at a time."""
    chat_turns: tuple[int, ...]
    """Which of the tool chats are rendered, by their turns."""
    chats: int
    """Tries of each way to render a whole tool chat."""
    http_turns: int
    """Turns of each rollout over HTTP."""
    http_most: int
    """The most rollouts over HTTP at once."""
    http_repeats: int
    """Tries of each number of them."""
    pool_rollouts: int
    """Rollouts of a run in worker processes."""
    pool_repeats: int
    """Tries of it with one worker and with two."""
    flight: int
    """Rollouts in flight in one process."""
    flight_seconds: float
    """Latency of their engine."""
    repeats: int
    """Tries of whatever else is measured."""
    peers_shapes: tuple[tuple[int, int], ...]
    """(turns of each rollout, rollouts in flight) beside other packages."""
    peers_repeats: int
    """Batches of each process."""
    peers_processes: int
    """Processes of each side."""


FULL = Effort(
    characters=4_000_000,
    long_rollouts=24,
    posts=200,
    in_flight=200,
    stored=2_000,
    batch=100,
    journalled=200,
    exported=10_000,
    export_repeats=2,
    reads=400,
    chat_turns=(20, 100),
    chats=5,
    http_turns=20,
    http_most=1024,
    http_repeats=3,
    pool_rollouts=400,
    pool_repeats=3,
    flight=10_000,
    flight_seconds=30.0,
    repeats=9,
    peers_shapes=((6, 64), (20, 64)),
    peers_repeats=3,
    peers_processes=2,
)
QUICK = Effort(
    characters=300_000,
    long_rollouts=1,
    posts=20,
    in_flight=8,
    stored=20,
    batch=10,
    journalled=4,
    exported=40,
    export_repeats=1,
    reads=10,
    chat_turns=(20,),
    chats=1,
    http_turns=2,
    http_most=8,
    http_repeats=1,
    pool_rollouts=32,
    pool_repeats=1,
    flight=64,
    flight_seconds=1.0,
    repeats=2,
    peers_shapes=((3, 2),),
    peers_repeats=1,
    peers_processes=1,
)
