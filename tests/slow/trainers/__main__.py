"""Run the tests of real trainers and print a report: ``python -m tests.slow.trainers FOLDER [ENVIRONMENT...]``.

FOLDER holds the environments that ``tools/trainers_env.py`` made. Each one's tests run in it, one file after the other.
A skip that is not on the list in ``skips.json`` is a failure; a row with ``"without": "sources"`` counts
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
"""Seconds for the tests of one file."""


def listed(rows: list[dict[str, str]], *, sources: bool) -> list[str]:
    """Patterns of the tests that may be skipped; `sources`: whether the trainers' sources are at hand."""
    # brackets are characters of their own in the list
    return [row["tests"].replace("[", "[[]") for row in rows if not (sources and row.get("without") == "sources")]


def unlisted(outcomes: dict[str, str], patterns: list[str]) -> list[str]:
    """Tests that were skipped and may not be."""
    skipped = [name for name, outcome in outcomes.items() if outcome == "skipped"]
    return [name for name in skipped if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def run(folder: Path, name: str) -> list[dict[str, Any]]:
    """The tests of one environment, in it; each file in a process of its own, for trainers change what they import."""
    python = (folder / name / "bin" / "python").absolute()
    return [run_file(python, HERE / file) for file in ENVIRONMENTS[name].files]


def run_file(python: Path, file: Path) -> dict[str, Any]:
    """What became of the tests of one file; a file that breaks off counts as failed."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "report.json"
        command = [str(python), "-m", "tests.slow.trainers.recorder", str(out), str(file)]
        surroundings = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
        subprocess.run(command, cwd=ROOT, env=surroundings, check=False, stdout=sys.stderr, timeout=PATIENCE)
        if out.is_file():
            return json.loads(out.read_text())
    return {"code": 1, "versions": {}, "outcomes": {file.name: "failed"}, "reasons": {}, "seconds": {}, "figures": {}}


def main(folder: Path, names: list[str]) -> int:
    rows: list[dict[str, str]] = json.loads(SKIPS.read_text())
    patterns = listed(rows, sources=bool(os.environ.get(VARIABLE)))
    found = {name: run(folder, name) for name in names or ENVIRONMENTS}
    files = [each for files in found.values() for each in files]

    def all_of(what: str) -> dict[str, Any]:
        return {test: value for each in files for test, value in each[what].items()}

    outcomes = all_of("outcomes")
    wrong = unlisted(outcomes, patterns)
    document = {
        "environments": {name: each[0]["versions"] for name, each in found.items()},
        "counts": {kind: list(outcomes.values()).count(kind) for kind in ("passed", "failed", "skipped")},
        "skips": rows,
        "skipped": all_of("reasons"),
        "unlisted_skips": wrong,
        "figures": all_of("figures"),
        "seconds": all_of("seconds"),
    }
    sys.stdout.write(f"{json.dumps(document, indent=1)}\n")
    # pytest's 5: no test was collected, as where a whole file stands on the list of skips
    bad = any(each["code"] not in (0, 5) or not each["outcomes"] for each in files)
    return 1 if wrong or bad else 0


if __name__ == "__main__":
    if len(sys.argv) < 2 or not set(sys.argv[2:]) <= set(ENVIRONMENTS):
        sys.exit(f"usage: python -m tests.slow.trainers FOLDER [{'|'.join(ENVIRONMENTS)}...]")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
