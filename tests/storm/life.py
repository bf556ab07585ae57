"""One life of a run: ``python -m tests.storm.life FOLDER CONFIG WORKERS CONCURRENCY [resume]``.

It prints the rollout and the reason of each attempt that it was told has ended, one line each.
"""

from __future__ import annotations

import asyncio
import sys

import msgspec

from rollbook.rewards import Outcome
from rollbook.run import RunConfig, run
from rollbook.run.recording import Silent

__all__ = ["main"]


class Tells(Silent):
    """Progress on stdout."""

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        del late
        sys.stdout.write(f"{outcome.rollout} {outcome.reason}\n")
        sys.stdout.flush()


def main(folder: str, config: str, workers: str, concurrency: str, *resume: str) -> None:
    """Run it."""
    asyncio.run(
        run(
            msgspec.json.decode(config, type=RunConfig),
            folder,
            resume=bool(resume),
            workers=int(workers),
            concurrency=int(concurrency),
            start_jitter=0.0,
            progress=Tells(),
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
