"""`python -m bench`: measure, print a table, write JSON.

The exit code is 0 whatever the figures, unless `--check` is given: then 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench.corpus import Corpus
from bench.effort import FULL, QUICK, Effort
from bench.exporting import measure_exports
from bench.http import measure_http
from bench.importing import measure_import
from bench.memory import measure_memory
from bench.pool import measure_pool
from bench.rendering import measure_rendering
from bench.report import machine, replace_table, table, versions
from bench.rows import Row
from bench.sampling import measure_samples
from bench.storing import measure_store
from bench.synthetic import Maker
from bench.turns import measure_turns
from rollbook.run import load_renderer

__all__ = ["main", "measure"]


def measure(effort: Effort, scratch: Path, cache: Path | None = None) -> Iterator[Row]:
    """All rows, one after the other. Run folders go into `scratch`; `cache`: where fetched models are kept."""
    yield from measure_import(effort)
    renderer = load_renderer("local", cache=cache)
    corpus = Corpus(renderer, effort.characters)
    maker = Maker(corpus)
    yield from measure_turns(renderer, corpus, scratch / "turns", effort)
    yield from measure_http(renderer, corpus, scratch / "http", effort)
    yield from measure_pool(renderer, scratch / "pool", cache, effort)
    yield from measure_rendering(effort)
    yield from measure_memory(maker, effort)
    yield from measure_samples(maker, effort)
    yield from measure_store(maker, scratch, effort)
    yield from measure_exports(maker, scratch, effort)


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    asked = _parser().parse_args(arguments)
    effort = QUICK if asked.quick else FULL
    facts, began = machine(), time.monotonic()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rollbook-bench-") as scratch:
        for row in measure(effort, Path(scratch), asked.cache):
            rows.append(row)
            print(f"{len(rows):3}  {row.name}", file=sys.stderr, flush=True)
    text = table(rows)
    print(text)
    missed = [row.name for row in rows if row.met is False]
    print(f"{len(missed)} targets missed{': ' if missed else ''}{', '.join(missed)}")
    result = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(time.monotonic() - began, 1),
        "quick": asked.quick,
        "machine": facts,
        "versions": versions(),
        "effort": asdict(effort),
        "rows": [row.plain() for row in rows],
    }
    asked.json.parent.mkdir(parents=True, exist_ok=True)
    asked.json.write_text(json.dumps(result, indent=2) + "\n")
    if asked.docs is not None:
        took = f"{facts['cpu']}, {facts['cpus']} CPUs, Python {facts['python']}, load {facts['load'][0]} at the start"
        replace_table(asked.docs, f"{took}; {result['seconds']:.0f} s in all.\n\n{text}")
    return 1 if asked.check and missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(sys.modules["bench"].__doc__ or "").strip())
    parser.add_argument("--quick", action="store_true", help="just enough to see that it runs; the figures mean little")
    parser.add_argument("--json", type=Path, default=Path("bench-out/bench.json"), help="where the JSON goes")
    parser.add_argument("--docs", type=Path, help="a document whose table is replaced by this one")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a target is missed")
    parser.add_argument("--cache", type=Path, help="folder of fetched models; the user's cache if left out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
