"""What the rollouts of a run shared, over all its workers: kept in the run's folder as ``resources.json``.

No reader needs it: it is about how the run was done, not about what was recorded. A run that goes on adds to what it
left before.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rollbook.errors import RecordError, StoreError
from rollbook.rollout import Histogram, LimiterStats, Snapshot
from rollbook.rollout.histogram import SECONDS
from rollbook.rollout.snapshot import add_limiters

__all__ = ["RESOURCES", "ResourceReport", "read_resources", "resource_report", "write_resources"]

RESOURCES = "resources.json"
"""The file's name within the run's folder."""


class ResourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """Who used what, and who waited for it."""

    workers: int
    """Event loops that ran rollouts, in this process or in processes of their own."""
    limiters: tuple[LimiterStats, ...]
    """One for each resource, over all workers together; its peak is the sum of theirs, so an upper bound."""
    lag: Histogram
    """How late what was due in the event loops ran, in seconds."""

    def plus(self, later: ResourceReport) -> ResourceReport:
        """This one and that of the same run when it went on: counts add up, limits are the later ones."""
        limits = {each.name: each.limit for each in later.limiters}
        peaks = {each.name: each.peak for each in self.limiters}
        rows = add_limiters((*self.limiters, *later.limiters))
        return ResourceReport(
            workers=later.workers,
            limiters=tuple(
                msgspec.structs.replace(
                    row,
                    limit=limits.get(row.name, row.limit),
                    peak=max(peaks.get(row.name, 0), _peak(later, row.name)),
                )
                for row in rows
            ),
            lag=self.lag.plus(later.lag),
        )


def _peak(report: ResourceReport, name: str) -> int:
    return max((each.peak for each in report.limiters if each.name == name), default=0)


def resource_report(last: Snapshot, workers: int) -> ResourceReport:
    """Out of the last snapshot of all workers together; so many they were."""
    return ResourceReport(workers=workers, limiters=last.limiters, lag=last.lag)


def write_resources(folder: Path, report: ResourceReport) -> None:
    """Keep it in a run's folder, added to what stands there. Raises `StoreError`."""
    earlier = read_resources(folder)
    path, new = folder / RESOURCES, folder / f"{RESOURCES}.new"
    try:
        new.write_bytes(msgspec.json.encode(report if earlier is None else earlier.plus(report)))
        os.replace(new, path)
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error}") from error


def read_resources(folder: Path) -> ResourceReport | None:
    """What stands in a run's folder; None where nothing does. Raises `StoreError` for what is no such report."""
    path = folder / RESOURCES
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ResourceReport)
        found.lag.plus(Histogram(bounds=SECONDS, counts=[0] * (SECONDS.classes + 1)))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, RecordError, ValueError) as error:
        raise StoreError(f"{path} cannot be read: {error}; nothing is lost if you delete it") from error
    return found
