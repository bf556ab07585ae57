"""The reader of a run: a `TraceSource` on disk that needs no lock and may read while the run is written.

Rules: the parts of all writers are read as one; only whole frames are seen; each call looks at what is there now.
What cannot be read is skipped and told in `report`; a strict reader raises instead. (An unfinished tail alone does not
raise: a writer may be at work there.) Asking for one trace always raises if that trace is damaged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from rollbook.errors import NewerFormat, StoreError
from rollbook.store.folder import Manifest, file_order, read_manifest, segment_files
from rollbook.store.notes import read_annotations
from rollbook.store.report import Damage, DamageReason, RecoveryReport
from rollbook.store.segment import SegmentReader
from rollbook.store.stored import StoredFrame
from rollbook.trace.annotation import Annotation, fold
from rollbook.trace.protocols import StoredSource, TraceSource
from rollbook.trace.summary import Summary
from rollbook.trace.trace import Trace

__all__ = ["RunReader"]


class RunReader(TraceSource, StoredSource):
    """Reads one run."""

    def __init__(self, folder: str | os.PathLike[str], *, strict: bool = False, experts: bool = False) -> None:
        """`experts`: read routed experts along. Raises `StoreError` where the folder is not a run, `NewerFormat` where
        it is too new."""
        self.folder = Path(folder)
        self.manifest: Manifest = read_manifest(self.folder)
        self.report = RecoveryReport()
        """What could not be read so far."""
        self._strict, self._experts = strict, experts
        self._segments: dict[Path, SegmentReader] = {}
        self._owner: dict[str, Path] = {}

    def __len__(self) -> int:
        """How many sealed traces there are now."""
        self._refresh()
        return len(self._owner)

    def __contains__(self, rollout: object) -> bool:
        self._refresh()
        return rollout in self._owner

    def rollouts(self) -> list[str]:
        """The ids of the sealed traces."""
        self._refresh()
        return list(self._owner)

    def summaries(self) -> Iterator[Summary]:
        """One row per sealed rollout, without reading any trace: part by part, each in the order of sealing."""
        self._refresh()
        for path in segment_files(self.folder):
            if path in self._segments:
                rows = self._segments[path].summaries()
                self._check()
                yield from (row for row in rows if self._owner.get(row.rollout, path) == path)

    def traces(self) -> Iterator[Trace]:
        """All sealed traces, in the order of `summaries`."""
        self._refresh()
        for path in segment_files(self.folder):
            for found in self._segments[path].traces() if path in self._segments else ():
                self._check()
                if not isinstance(found, Damage) and self._owner.get(found.id, path) == path:
                    yield found

    def stored(self) -> Iterator[StoredFrame]:
        """All sealed traces as they stand, in the order of `traces`."""
        self._refresh()
        for path in segment_files(self.folder):
            if path in self._segments:
                segment = self._segments[path]
                for found in segment.stored():
                    if self._owner.get(found.rollout, segment.path) is segment.path:
                        yield found
                        self._check()

    def get(self, rollout: str) -> Trace:
        """One trace by its rollout id; raises `KeyError`."""
        if rollout not in self._owner:
            self._refresh()
        trace = self._segments[self._owner[rollout]].get(rollout)
        self._check()
        return trace

    def annotations(self) -> list[Annotation]:
        """Later facts, the newest of each key."""
        rows = read_annotations(self.folder, self.report)
        self._check()
        return fold(rows)

    def _refresh(self) -> None:
        for path in segment_files(self.folder):
            segment = self._segments.get(path)
            if segment is None:
                name = path.relative_to(self.folder).as_posix()
                segment = SegmentReader(path, name=name, report=self.report, experts=self._experts)
            self._take(path, segment)
        self._check()

    def _take(self, path: Path, segment: SegmentReader) -> None:
        if segment.sealed and path in self._segments:
            return
        try:
            entries = segment.entries()
        except NewerFormat:
            raise
        except StoreError as error:
            size = path.lstat().st_size
            self.report.add(
                Damage(file=segment.name, offset=0, bytes=size, reason=DamageReason.FOREIGN, detail=str(error))
            )
            return
        self._segments[path] = segment
        path = segment.path  # the same object for all of its traces: paths are slow to compare
        for entry in entries:
            owner = self._owner.setdefault(entry.rollout, path)
            if owner is not path and file_order(self.folder, owner) < file_order(self.folder, path):
                self._owner[entry.rollout] = path

    def _check(self) -> None:
        if self._strict:
            found = [each for each in self.report.damages if each.reason is not DamageReason.UNFINISHED]
            if found:
                raise StoreError(f"{self.folder} is damaged: {found[0]}")
