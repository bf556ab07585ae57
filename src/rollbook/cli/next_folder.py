"""Where a run lies that was given no folder: ``runs/NAME-DATE-N``, with the first N that is free."""

from __future__ import annotations

import re
from datetime import date
from pathlib import Path

__all__ = ["next_folder"]


def next_folder(env: str, prefix: str = "") -> Path:
    """The folder for a run of `env` (a name, or package.module:Class); it is not made."""
    name = re.sub(r"[^A-Za-z0-9_.]+", "-", env.rpartition(":")[2]).strip("-.") or "run"
    stem, number = f"{prefix}{name}-{date.today().isoformat()}", 1
    while (folder := Path("runs") / f"{stem}-{number}").exists():
        number += 1
    return folder
