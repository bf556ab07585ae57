"""Opening a run or a part for writing: cut unfinished tails, seal what dead writers left, find what was in flight.

Order: segments, then the journal, then annotations. A tail is cut only where the file ends inside a frame; damage in
the middle stays where it is and is reported, for cutting there could destroy what a person can still save. A segment
with such a lost rest gets no footer; a journal file with such damage is set aside under the name ``*.damaged`` when
its rollouts are sealed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from rollbook.errors import RecordError
from rollbook.store.append import AppendFile, StoreOptions
from rollbook.store.folder import annotation_files, journal_files, segment_files
from rollbook.store.frame import DamagedFrame, Frame, FrameKind, Packer, SectionId
from rollbook.store.journal import TurnHeader
from rollbook.store.notes import repair_stream
from rollbook.store.report import Damage, DamageReason, RecoveryReport
from rollbook.store.scan import FileKind, FrameFile, open_frames
from rollbook.store.segment import PART_SECTIONS, Entry, SegmentReader, find_footer, footer_frame
from rollbook.store.tail import cut_tail
from rollbook.trace.summary import Summary
from rollbook.trace.trace import Trace
from rollbook.trace.wire import decode_record, decode_trace

__all__ = ["Folder", "InFlight", "repair_folder"]


@dataclass(slots=True)
class InFlight:
    """One rollout that was begun and not sealed: its journal frames, in order."""

    rollout: str
    places: list[tuple[Path, Frame]] = field(default_factory=list[tuple[Path, Frame]])
    before: InFlight | None = None
    """The frames whose place these took; read where these are damaged."""


@dataclass(slots=True)
class Folder:
    """A run folder, or a part of it, after repair."""

    root: Path
    """Of the run; files are named from here."""
    report: RecoveryReport = field(default_factory=RecoveryReport)
    sealed: set[str] = field(default_factory=set[str])
    """Rollouts that stand in a segment."""
    in_flight: dict[str, InFlight] = field(default_factory=dict[str, InFlight])
    journals: list[Path] = field(default_factory=list[Path])
    """Journal files of dead writers."""

    def name(self, path: Path) -> str:
        """How a file is called in reports."""
        return path.relative_to(self.root).as_posix()

    def place(self, path: Path, frame: Frame) -> None:
        """Sort one journal frame to its rollout."""
        try:
            rollout = decode_record(frame.header, TurnHeader, "turn").rollout
        except RecordError as error:
            self._gap(path, frame, str(error))
            return
        if rollout in self.sealed:
            return
        if frame.kind == FrameKind.BEGIN:
            self.in_flight[rollout] = InFlight(rollout, before=self.in_flight.get(rollout))
        elif rollout not in self.in_flight:
            self._gap(path, frame, f"a turn of rollout {rollout}, whose beginning is not there")
            return
        self.in_flight[rollout].places.append((path, frame))

    def load(self, flight: InFlight) -> Trace | None:
        """A trace that was in flight, with all its finished turns, not sealed; None where its beginning is damaged.

        Turns behind a damaged one do not follow what was stored; they are left out and reported.
        """
        steps = list(self._read_steps(flight))
        for count in range(len(steps), 0, -1):
            try:
                trace = _build(steps[:count])
            except (RecordError, KeyError) as error:
                path, frame = flight.places[count - 1]
                self._gap(path, frame, f"rollout {flight.rollout}, step {count - 1}: {error}")
                continue
            return trace
        return self.load(flight.before) if flight.before is not None else None

    def _read_steps(self, flight: InFlight) -> Iterator[tuple[TurnHeader, dict[int, bytes]]]:
        for index, (path, frame) in enumerate(flight.places):
            try:
                with open_frames(path, self.name(path)) as file:
                    yield decode_record(frame.header, TurnHeader, "turn"), file.sections(frame)
            except DamagedFrame as error:
                for later, behind in flight.places[index:]:
                    self._gap(later, behind, f"rollout {flight.rollout}: {error}")
                return

    def _gap(self, path: Path, frame: Frame, detail: str) -> None:
        self.report.add(
            Damage(
                file=self.name(path), offset=frame.offset, bytes=frame.length, reason=DamageReason.GAP, detail=detail
            )
        )

    def drop_journals(self) -> None:
        """Delete the journal files of dead writers, whose rollouts are all sealed; set damaged ones aside."""
        damaged = {each.file for each in self.report.damages if each.reason is not DamageReason.UNFINISHED}
        for path in self.journals:
            if self.name(path) in damaged:
                path.rename(path.with_name(f"{path.name}.damaged"))
            else:
                path.unlink(missing_ok=True)
        self.journals.clear()


def _build(steps: list[tuple[TurnHeader, dict[int, bytes]]]) -> Trace:
    parts = [{key: raw[name] for key, name in PART_SECTIONS.items() if name in raw} for _, raw in steps]
    tails = [raw[SectionId.TAIL] for _, raw in steps if SectionId.TAIL in raw]
    heads = [raw[SectionId.HEAD] for _, raw in steps if SectionId.HEAD in raw]  # the last one knows most
    trace = decode_trace(heads[-1], parts, tails[-1] if tails else None, sealed=False)
    for header, _ in steps:
        for node, mark in header.marks:
            trace.graph.mark(node, mark)
    return trace


def repair_folder(folder: Folder, place: Path, options: StoreOptions, packer: Packer) -> Folder:
    """Bring a run with its parts, or one part at `place`, into order for writing; the caller holds the locks."""
    doubtful: set[str] = set()
    for path in segment_files(place):
        doubtful |= _repair_segment(folder, path, options, packer)
    for path in journal_files(place):
        _repair_journal(folder, path)
    for path in annotation_files(place):
        repair_stream(path, folder.name(path), folder.report)
    folder.sealed |= doubtful - folder.in_flight.keys()
    folder.report.in_flight += [each for each in folder.in_flight if each not in folder.report.in_flight]
    if not folder.in_flight:
        folder.drop_journals()
    return folder


def _repair_segment(folder: Folder, path: Path, options: StoreOptions, packer: Packer) -> set[str]:
    """Returns rollouts of which the segment has a frame, but a damaged one."""
    name = folder.name(path)
    with open_frames(path, name) as file:
        footer = find_footer(file)
    if footer is not None:
        folder.sealed |= {entry.rollout for entry in SegmentReader(path, name=name, report=folder.report).entries()}
        return set()
    frames, writable = cut_tail(path, FileKind.SEGMENT, name, folder.report)
    if not path.stat().st_size:
        path.unlink()
        return set()
    closed = any(frame.kind == FrameKind.FOOTER for frame in frames)
    with open_frames(path, name) as file:
        rows = list(_summaries(folder, file, frames))
        sound = {entry.rollout for entry, frame in rows if _is_sound(folder, file, frame)}
    folder.sealed |= sound
    if writable and not closed:
        appender = AppendFile(path, options, new=False)
        try:
            entries, headers = [entry for entry, _ in rows], [frame.header for _, frame in rows]
            appender.append(footer_frame(packer, appender.size, entries, headers))
        finally:
            appender.close()
    return {entry.rollout for entry, _ in rows} - sound


def _summaries(folder: Folder, file: FrameFile, frames: list[Frame]) -> Iterator[tuple[Entry, Frame]]:
    for frame in frames:
        if frame.kind == FrameKind.TRACE:
            try:
                summary = decode_record(frame.header, Summary, "summary")
            except RecordError as error:
                folder.report.add(file.damage(frame.offset, frame.length, DamageReason.SECTION, str(error)))
                continue
            yield Entry(summary.rollout, frame.offset, frame.length), frame


def _is_sound(folder: Folder, file: FrameFile, frame: Frame) -> bool:
    try:
        file.verify(frame)
    except DamagedFrame as error:
        folder.report.add(file.damage(frame.offset, frame.length, DamageReason.SECTION, str(error)))
        return False
    return True


def _repair_journal(folder: Folder, path: Path) -> None:
    name = folder.name(path)
    frames, _ = cut_tail(path, FileKind.JOURNAL, name, folder.report)
    if not path.stat().st_size:
        path.unlink()
        return
    folder.journals.append(path)
    for frame in frames:
        if frame.kind in (FrameKind.BEGIN, FrameKind.TURN):
            folder.place(path, frame)
