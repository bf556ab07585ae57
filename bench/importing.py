"""CPU of a fresh interpreter that imports Rollbook, beside one that imports nothing."""

from __future__ import annotations

import resource
import subprocess
import sys

from bench.effort import Effort
from bench.rows import Peer, Row, Target

__all__ = ["measure_import"]


def measure_import(effort: Effort) -> list[Row]:
    """CPU seconds of whole processes."""
    works = ("pass", "import rollbook", "import rollbook.run")
    tries: dict[str, list[float]] = {work: [] for work in works}
    for _ in range(effort.repeats):
        for work in works:
            tries[work].append(_cpu_of_process(work))
    how = f"minimum of {effort.repeats} processes, interpreter included"
    peer = Peer("python -c pass", min(tries["pass"]))
    public, everything = min(tries["import rollbook"]), min(tries["import rollbook.run"])
    return [
        Row(name="import rollbook", value=public, unit="s", how=how, target=Target(limit=0.2), peer=peer),
        Row(name="import all that a run needs", value=everything, unit="s", how=how, peer=peer),
    ]


def _cpu_of_process(work: str) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([sys.executable, "-c", work], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
