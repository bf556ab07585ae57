"""Episodes and groups: which rollouts belong together, and which are compared.

Group membership goes by the scheduled group id and the agent's seat, never by position in a list.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from rollbook.trace.trace import Trace

__all__ = ["Episode", "GroupKey", "by_episode", "by_group"]


@dataclass(frozen=True, slots=True, order=True)
class GroupKey:
    """What is compared with each other: one scheduled task and one seat."""

    group: str
    seat: str


@dataclass(frozen=True, slots=True)
class Episode:
    """Rollouts that belong together: a solver and its judge, the players of a game."""

    id: str
    traces: tuple[Trace, ...]

    @property
    def seats(self) -> tuple[str, ...]:
        """The seats taken, in the order of the traces."""
        return tuple(trace.head.agent.seat for trace in self.traces)


def by_group(traces: Iterable[Trace]) -> dict[GroupKey, list[Trace]]:
    """Traces by group and seat, in the order in which groups first appear."""
    groups: dict[GroupKey, list[Trace]] = {}
    for trace in traces:
        groups.setdefault(GroupKey(trace.head.group, trace.head.agent.seat), []).append(trace)
    return groups


def by_episode(traces: Iterable[Trace]) -> list[Episode]:
    """Traces by episode; a trace without an episode is one of its own, named by its rollout."""
    episodes: dict[str, list[Trace]] = {}
    for trace in traces:
        episodes.setdefault(trace.head.episode or trace.id, []).append(trace)
    return [Episode(key, tuple(members)) for key, members in episodes.items()]
