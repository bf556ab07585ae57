"""Cutting the unfinished tail of a file, so that it can be written further.

Only bytes behind the last whole frame go, and only where the file ends inside a frame; the caller has the right to
write the file.
"""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from rollbook.store.frame import Frame
from rollbook.store.report import DamageReason, RecoveryReport
from rollbook.store.scan import FileKind, open_frames

__all__ = ["cut_tail"]


def cut_tail(path: Path, content: FileKind, name: str, report: RecoveryReport) -> tuple[list[Frame], bool]:
    """Cut a file to its whole frames and report what was cut or cannot be read.

    Returns its frames, and whether it can be written further: it is ours and its rest is not lost.
    """
    frames: list[Frame] = []
    with open_frames(path, name) as file:
        if (foreign := file.foreign(content)) is not None:
            report.add(foreign)
            return [], False
        lost, end = False, file.size
        for found in file.walk():
            if isinstance(found, Frame):
                frames.append(found)
                continue
            cut = found.reason is DamageReason.UNFINISHED
            lost = lost or found.reason is DamageReason.LOST
            end = found.offset if cut else end
            report.add(msgspec.structs.replace(found, cut=cut))
    if end < file.size:
        os.truncate(path, end)
    return frames, not lost
