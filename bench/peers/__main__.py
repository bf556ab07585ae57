"""`python -m bench.peers STRANDS VERIFIERS`: the Pythons of the peers' environments (`tools/peers_env.py` makes them).

One JSON document on stdout, the table on stderr. The exit code is 0 whatever the figures, unless `--check` is given:
then 1 where a target is missed.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from bench.effort import FULL, QUICK
from bench.peers.compare import PAIRS, measure_peers
from bench.report import machine, replace_table, table

__all__ = ["main"]


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=__doc__)
    for pair in PAIRS:
        parser.add_argument(pair.name, type=Path, help=f"the Python of the environment that holds {pair.name}")
    parser.add_argument("--quick", action="store_true", help="just enough to see that it runs; the figures mean little")
    parser.add_argument("--docs", type=Path, help="a document whose table of peers is replaced by this one")
    parser.add_argument("--check", action="store_true", help="exit code 1 where a target is missed")
    asked = vars(parser.parse_args())
    effort = QUICK if asked["quick"] else FULL
    facts, began = machine(), time.monotonic()
    rows, said = measure_peers({pair.name: asked[pair.name] for pair in PAIRS}, effort)
    seconds, text = round(time.monotonic() - began, 1), table(rows)
    print(text, file=sys.stderr)
    if asked["docs"] is not None:
        took = f"{facts['cpu']}, {facts['cpus']} CPUs, load {facts['load'][0]} at the start; {seconds:.0f} s in all."
        replace_table(asked["docs"], f"{took}\n\n{text}", "peers")
    shape = {name: value for name, value in asdict(effort).items() if name.startswith("peers_")}
    result = {
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": seconds,
        "machine": facts,
        "effort": shape,
        "rows": [row.plain() for row in rows],
        "sides": said,
    }
    print(json.dumps(result))
    return 1 if asked["check"] and any(row.met is False for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
