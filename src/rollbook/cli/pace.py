"""How a run gets on, in words: what snapshots say, and rates over the last seconds."""

from __future__ import annotations

from collections import Counter, deque

from rollbook.cli.screen import MISSING, counted, counts
from rollbook.rollout import Phase, Snapshot

__all__ = ["Pace"]

WINDOW = 15.0
"""Seconds over which rates are taken."""
ENDINGS = 5
"""Endings that are named, the most frequent ones."""


class Pace:
    """Fed with snapshots and the time at which each was taken, in seconds of any clock and of the wall's."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, Snapshot]] = deque()
        self._wall = 0.0

    def take(self, snapshot: Snapshot, now: float, wall: float) -> None:
        """How things stand at `now`; `wall` is the same moment in Unix seconds."""
        self._seen.append((now, snapshot))
        self._wall = wall
        while len(self._seen) > 2 and self._seen[1][0] <= now - WINDOW:
            self._seen.popleft()

    @property
    def last(self) -> Snapshot | None:
        """The last snapshot; None before the first."""
        return self._seen[-1][1] if self._seen else None

    def speed(self) -> str:
        """Rollouts and sampled tokens per second, over the last seconds."""
        (began, first), (now, last) = self._seen[0], self._seen[-1]
        if now <= began:
            return f"{MISSING} rollouts/s, {MISSING} tokens/s"
        seconds = now - began
        rollouts, tokens = (last.finished - first.finished) / seconds, (last.tokens - first.tokens) / seconds
        return f"{rollouts:.2f} rollouts/s, {tokens:,.0f} tokens/s"

    def in_flight(self) -> str:
        """How many are in flight, by phase, and how old the oldest is."""
        _, last = self._seen[-1]
        words = f"{last.in_flight} in flight"
        if last.in_flight:
            words += f" ({counts({str(phase): last.phases[phase] for phase in Phase if last.phases.get(phase)})})"
        return words if last.oldest is None else f"{words}, the oldest for {max(self._wall - last.oldest, 0.0):.0f} s"

    def lines(self) -> list[str]:
        """All of it, for a screen that is drawn again and again. Nothing before the first snapshot."""
        if not self._seen:
            return []
        _, last = self._seen[-1]
        lines = [self.speed(), self.in_flight()]
        if last.endings:
            most = Counter(last.endings).most_common(ENDINGS)
            rest = last.finished - sum(count for _, count in most)
            lines.append(f"ended: {counts({str(reason): count for reason, count in most})}")
            lines[-1] += f", others {rest}" if rest else ""
        queues = {each.name: each.waiting for each in last.limiters if each.waiting}
        if queues:
            lines.append(f"waiting for {counts(queues)}")
        if last.calls.failed or last.calls.repeated:
            lines.append(f"{counted(last.calls.failed, 'failed request')}, {last.calls.repeated} tried again")
        return lines
