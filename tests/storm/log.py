"""What the fake engine wrote down, by rollout, and what each request should have come to."""

from __future__ import annotations

import urllib.request
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

import msgspec

from rollbook.policy.testing import Fault, LogEntry
from rollbook.trace import Reason

__all__ = ["CHECK", "Came", "Served", "read_log", "served", "state_of"]

CHECK = "check"
"""Sessions of the questions before a run."""
_BUSY = (Fault.BUSY, Fault.BUSY_LATER, Fault.UNAVAILABLE)
_TRANSIT = (Fault.SERVER_ERROR, Fault.RESET, Fault.TRUNCATED)
_FINE = (None, Fault.ABORT, Fault.UPDATE)


class Came(Enum):
    """What becomes of one request that the server saw."""

    BUSY = auto()
    """It was turned away, and is asked again with the same seed."""
    FINE = auto()
    """A reply, perhaps an aborted one."""
    UNREACHABLE = auto()
    TIMEOUT = auto()
    CONTRACT = auto()
    LEFT = auto()
    """The client left before the reply: it was killed or stopped."""

    @property
    def reason(self) -> Reason | None:
        """Of the attempt that ends by it, where no request may be made again."""
        return {
            Came.UNREACHABLE: Reason.ENGINE_UNREACHABLE,
            Came.TIMEOUT: Reason.ENGINE_TIMEOUT,
            Came.CONTRACT: Reason.ENGINE_CONTRACT,
        }.get(self)


@dataclass(frozen=True)
class Served:
    """One request of the record: those that were turned away, and the one that decided."""

    seed: int
    entries: Sequence[LogEntry]

    @property
    def last(self) -> LogEntry:
        return self.entries[-1]

    @property
    def came(self) -> Came:
        """What came of it, by the fault that was injected."""
        entry = self.last
        if entry.fault in _BUSY:
            return Came.BUSY
        if entry.fault is Fault.SLOW:
            return Came.TIMEOUT
        if entry.cancelled or entry.status is None:
            return Came.LEFT
        if entry.fault in _TRANSIT:
            return Came.UNREACHABLE
        return Came.FINE if entry.fault in _FINE else Came.CONTRACT


def served(log: Sequence[LogEntry]) -> Mapping[str, Sequence[Served]]:
    """Requests by rollout, each in the order in which they were first sent."""
    found = defaultdict[str, dict[int, list[LogEntry]]](lambda: defaultdict(list))
    for entry in log:
        if entry.session and not entry.session.startswith(CHECK):
            fields = entry.fields
            found[entry.session][fields.get("sampling_params", fields)["seed"]].append(entry)
    return {session: [Served(*each) for each in rows.items()] for session, rows in found.items()}


def read_log(url: str) -> list[LogEntry]:
    """The log of a fake engine."""
    with urllib.request.urlopen(f"{url}/_fake/log", timeout=30) as reply:
        return msgspec.json.decode(reply.read(), type=list[LogEntry])


def state_of(url: str) -> dict[str, object]:
    """What runs there."""
    with urllib.request.urlopen(f"{url}/_fake/state", timeout=30) as reply:
        return msgspec.json.decode(reply.read(), type=dict[str, object])
