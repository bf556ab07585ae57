"""Run the tests of real trainers and print a report: ``python -m tests.slow.trainers FOLDER [ENVIRONMENT...]``.

FOLDER holds the environments that ``tools/trainers_env.py`` made. Each one's tests run in it, one environment after
the other. A skip that is not on the list in ``skips.json`` is a failure; a row with ``"without": "sources"`` counts
only where ROLLBOOK_TRAINER_SOURCES is not set. What pytest says goes to stderr; stdout gets one JSON document.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from tools.trainers_env import ENVIRONMENTS, VARIABLE

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
SKIPS = HERE / "skips.json"
PATIENCE = 1800
"""Seconds for the tests of one environment."""


def listed(rows: list[dict[str, str]], *, sources: bool) -> list[str]:
    """Patterns of the tests that may be skipped; `sources`: whether the trainers' sources are at hand."""
    # brackets are characters of their own in the list
    return [row["tests"].replace("[", "[[]") for row in rows if not (sources and row.get("without") == "sources")]


def unlisted(outcomes: dict[str, str], patterns: list[str]) -> list[str]:
    """Tests that were skipped and may not be."""
    skipped = [name for name, outcome in outcomes.items() if outcome == "skipped"]
    return [name for name in skipped if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def run(folder: Path, name: str) -> dict[str, Any]:
    """The tests of one environment, in it."""
    files = [str(HERE / file) for file in ENVIRONMENTS[name].files]
    python = (folder / name / "bin" / "python").absolute()
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "report.json"
        command = [str(python), "-m", "tests.slow.trainers.recorder", str(out), *files]
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=surroundings, check=False, stdout=sys.stderr, timeout=PATIENCE)
        if not out.is_file():
            return {"code": 1, "versions": {}, "outcomes": {}, "reasons": {}, "seconds": {}, "figures": {}}
        return json.loads(out.read_text())


def main(folder: Path, names: list[str]) -> int:
    rows: list[dict[str, str]] = json.loads(SKIPS.read_text())
    patterns = listed(rows, sources=bool(os.environ.get(VARIABLE)))
    found = {name: run(folder, name) for name in names or ENVIRONMENTS}
    outcomes = {test: outcome for each in found.values() for test, outcome in each["outcomes"].items()}
    wrong = unlisted(outcomes, patterns)
    document = {
        "environments": {name: each["versions"] for name, each in found.items()},
        "counts": {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")},
        "skips": rows,
        "skipped": {test: reason for each in found.values() for test, reason in each["reasons"].items()},
        "unlisted_skips": wrong,
        "figures": {test: kept for each in found.values() for test, kept in each["figures"].items()},
        "seconds": {test: spent for each in found.values() for test, spent in each["seconds"].items()},
    }
    sys.stdout.write(f"{json.dumps(document, indent=1)}\n")
    # pytest's 5: no test was collected, as where a whole file stands on the list of skips
    bad = [name for name, each in found.items() if each["code"] not in (0, 5) or not each["outcomes"]]
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(ENVIRONMENTS):
        sys.exit(f"usage: python -m tests.slow.trainers FOLDER [{'|'.join(ENVIRONMENTS)}...]")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
