"""Runs inside a trainer's environment: ``python -m tests.slow.trainers.recorder OUT FILES...`` runs pytest and writes
what became of each test to OUT, as JSON. Nothing of a trainer is imported here."""

from __future__ import annotations

import json
import platform
import sys
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest
from tools.trainers_env import ENVIRONMENTS, MARK

SOURCES = "sources"
"""The folder of pinned sources, beside the environments."""


@dataclass
class Recorder:
    """A plugin of pytest that keeps what became of each test."""

    outcomes: dict[str, str] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    figures: dict[str, dict[str, Any]] = field(default_factory=dict)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            name = report.nodeid.rpartition("/")[2]  # a whole file
            self.outcomes[name], self.reasons[name] = "skipped", report.longrepr[2]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        name = report.nodeid.rpartition("/")[2]
        if report.when == "call" or report.outcome != "passed":
            self.outcomes[name] = report.outcome
        if report.outcome == "skipped" and isinstance(report.longrepr, tuple):
            self.reasons[name] = report.longrepr[2]
        self.seconds[name] = round(self.seconds.get(name, 0.0) + report.duration, 2)
        if report.when == "call" and report.user_properties:
            self.figures[name] = dict(report.user_properties)


def need_source(name: str) -> Path:
    """The pinned source of a trainer, put on the path; skips the test where it was not copied."""
    place = Path(sys.prefix).parent / SOURCES / name
    if not (place / MARK).is_file():
        pytest.skip(f"the source of {name} is not here: set ROLLBOOK_TRAINER_SOURCES", allow_module_level=True)
    if str(place) not in sys.path:
        sys.path.insert(0, str(place))
    return place


def versions(environment: str) -> dict[str, str]:
    """Of the packages and sources that the report names."""
    wanted = ENVIRONMENTS[environment]
    found = {"python": platform.python_version()}
    for name in wanted.reported:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "absent"
    for source in wanted.sources:
        mark = Path(sys.prefix).parent / SOURCES / source.name / MARK
        found[f"{source.repository}"] = mark.read_text() if mark.is_file() else "absent"
    return found


def main(out: Path, words: list[str]) -> int:
    recorder = Recorder()
    # the warnings of trainers are theirs; our fixtures are for other tests
    options = ["-p", "no:cacheprovider", "-o", "filterwarnings=default", "--noconftest", "-v", "--tb=short"]
    code = int(pytest.main([*options, *words], plugins=[recorder]))
    found = {
        "code": code,
        "versions": versions(Path(sys.prefix).name),
        "outcomes": recorder.outcomes,
        "reasons": recorder.reasons,
        "seconds": recorder.seconds,
        "figures": recorder.figures,
    }
    out.write_text(json.dumps(found))
    return code


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
