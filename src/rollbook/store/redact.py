"""Redaction on disk: the one change that a sealed trace allows. The segment is written anew beside the old one and
takes its place in one step; every other frame is copied byte by byte.

Rules: nobody else writes the run meanwhile; nothing is in flight, for the journal could hold the text; a segment with
damage is refused, for copying would make the damage permanent. The freed blocks of the disk are not overwritten.
"""

from __future__ import annotations

import os
from pathlib import Path

from rollbook.errors import StoreError
from rollbook.store.append import replace_file
from rollbook.store.folder import segment_files
from rollbook.store.frame import Frame, FrameKind, Packer
from rollbook.store.report import Damage
from rollbook.store.scan import FrameFile, open_frames
from rollbook.store.segment import Entry, SegmentReader, footer_frame, pack_trace
from rollbook.store.writer import RunWriter
from rollbook.trace.record import FinalState
from rollbook.trace.redact import redact
from rollbook.trace.summary import Summary
from rollbook.trace.task import Task
from rollbook.trace.trace import Trace
from rollbook.trace.wire import decode_record

__all__ = ["redact_trace"]


def redact_trace(
    folder: str | os.PathLike[str],
    rollout: str,
    *nodes: int,
    task: Task | None = None,
    final_state: FinalState | None = None,
) -> Trace:
    """Remove text and ids of `nodes` from a stored trace (see `rollbook.trace.redact`); returns what is stored now.

    Raises `KeyError` for an unknown rollout, `StoreError` where the rules above do not hold.
    """
    with RunWriter.open(folder) as writer:
        if writer.recovery.in_flight:
            raise StoreError(f"{folder} has rollouts in flight; seal them first (seal_interrupted)")
        for path in segment_files(writer.folder):
            segment = SegmentReader(path, experts=True)
            if any(entry.rollout == rollout for entry in segment.entries()):
                if not segment.sealed:
                    raise StoreError(f"{path} is being written, or damaged; a redaction needs it sealed")
                redacted = redact(segment.get(rollout), *nodes, task=task, final_state=final_state)
                replace_file(path, _rewritten(path, redacted))
                return redacted
    raise KeyError(rollout)


def _rewritten(path: Path, trace: Trace) -> bytes:
    packer = Packer()
    frames: list[bytes] = []
    entries: list[Entry] = []
    summaries: list[bytes] = []
    size = 0
    with open_frames(path) as file:
        for found in file.walk():
            if isinstance(found, Damage):
                raise StoreError(f"{path} is damaged and cannot be rewritten: {found}")
            if found.kind == FrameKind.FOOTER:
                continue
            frame, header = _copied(file, found), found.header
            if found.kind == FrameKind.TRACE:
                rollout = decode_record(header, Summary, "summary").rollout
                if rollout == trace.id:
                    frame, header = pack_trace(packer, trace)
                entries.append(Entry(rollout, size, len(frame)))
                summaries.append(header)
            frames.append(frame)
            size += len(frame)
    return b"".join((*frames, footer_frame(packer, size, entries, summaries)))


def _copied(file: FrameFile, frame: Frame) -> bytes:
    file.verify(frame)
    return os.pread(file.descriptor, frame.length, frame.offset)
