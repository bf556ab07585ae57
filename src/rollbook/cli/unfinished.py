"""What a reader of a run that is not finished must know, on stderr."""

from __future__ import annotations

import shlex
from pathlib import Path

from rollbook.cli.screen import console, counted, visible
from rollbook.run import standing
from rollbook.store import RunReader

__all__ = ["tell_unfinished"]


def tell_unfinished(source: RunReader, run: Path | str) -> None:
    """Say what is missing of the run, and what follows; nothing where it is complete. `run`: how it was named; a copy
    in an object store is no place to go on in."""
    found = standing(source)
    if found is None or not found.missing:
        return
    folder = shlex.quote(str(run)) if isinstance(run, Path) else "FOLDER"
    where = "" if isinstance(run, Path) else " in the folder of which this is the copy"
    again = "open_stream(..., resume=True)" if found.stream else f"rollbook run ... --out {visible(folder)} --resume"
    console(stderr=True).print(
        f"This run is not finished: {found.finished} of {counted(found.planned, 'rollout')} are done, "
        f"{found.closed} of {counted(found.groups, 'group')} closed. Rollouts of the other groups have no advantage "
        "yet; what was interrupted runs again. "
        f"`{again}`, with the same arguments, goes on{where}.\n"
    )
