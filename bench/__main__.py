"""`python -m bench`: measure, print a table, write JSON.

The exit code is 0 whatever the figures, unless `--check` is given: then 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
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


PARTS = ("import", "turns", "http", "pool", "rendering", "memory", "samples", "store", "exports")
"""What is measured, in this order."""


def measure(effort: Effort, scratch: Path, cache: Path | None = None, parts: Sequence[str] = PARTS) -> Iterator[Row]:
    """The rows of some parts, one after the other. Run folders go into `scratch`; `cache`: where fetched models are
    kept."""
    renderer = load_renderer("local", cache=cache)
    corpus = Corpus(renderer, effort.characters)
    maker = Maker(corpus)
    makes: dict[str, Callable[[], Iterable[Row]]] = {
        "import": lambda: measure_import(effort),
        "turns": lambda: measure_turns(renderer, corpus, scratch / "turns", effort),
        "http": lambda: measure_http(renderer, corpus, scratch / "http", effort),
        "pool": lambda: measure_pool(renderer, scratch / "pool", cache, effort),
        "rendering": lambda: measure_rendering(effort),
        "memory": lambda: measure_memory(maker, effort),
        "samples": lambda: measure_samples(maker, effort),
        "store": lambda: measure_store(maker, scratch, effort),
        "exports": lambda: measure_exports(maker, scratch, effort),
    }
    for part in parts:
        yield from makes[part]()


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    asked = _parser().parse_args(arguments)
    effort = QUICK if asked.quick else FULL
    facts, began = machine(), time.monotonic()
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="rollbook-bench-") as scratch:
        for row in measure(effort, Path(scratch), asked.cache, (asked.part,) if asked.part else PARTS):
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
        replace_table(asked.docs, f"{took}; {result['seconds']:.0f} s in all.\n\n{text}", asked.part or "bench")
    return 1 if asked.check and missed else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=(sys.modules["bench"].__doc__ or "").strip())
    parser.add_argument("--quick", action="store_true", help="just enough to see that it runs; the figures mean little")
    parser.add_argument("--part", choices=PARTS, help="measure nothing else; --docs then replaces a table of that name")
    parser.add_argument("--json", type=Path, default=Path("bench-out/bench.json"), help="where the JSON goes")
    parser.add_argument("--docs", type=Path, help="a document whose table is replaced by this one")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a target is missed")
    parser.add_argument("--cache", type=Path, help="folder of fetched models; the user's cache if left out")
    return parser


if __name__ == "__main__":
    sys.exit(main())
