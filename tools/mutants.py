"""Take each check of the package away in turn and see the named test turn red.

Rules: the working tree is never changed, each mutant lives in a copy of ``src``; a mutant whose snippet does not stand
in its file exactly once is an error; every named test passes without a mutant first; a mutant is killed only by a
test that fails, not by one that cannot be run.

Exit code 0: all were killed; 1: one survived or is broken.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.mutants import Mutant  # noqa: E402 (the repository is not a package that is installed)

AT_ONCE = 2
"""Mutants that run beside each other."""
SECONDS = 60
"""The longest that one test may take; a mutant that hangs counts as broken."""
ALL_SECONDS = 1200
"""The longest that all named tests together may take without a mutant."""


class Verdict(StrEnum):
    """What became of a mutant."""

    KILLED = "killed"
    """The named test failed."""
    SURVIVED = "survived"
    """The named test passed: it does not hold the check."""
    BROKEN = "broken"
    """The snippet is not there exactly once, or the test could not be run."""


class Result(NamedTuple):
    """One mutant and what became of it."""

    room: str
    mutant: Mutant
    verdict: Verdict
    detail: str
    seconds: float


def rooms() -> dict[str, list[Mutant]]:
    """The mutants of each room."""
    names = sorted(path.stem for path in (ROOT / "tests" / "mutants").glob("*.py") if path.stem != "__init__")
    return {name: importlib.import_module(f"tests.mutants.{name}").MUTANTS for name in names}


@contextmanager
def copied() -> Iterator[Path]:
    """A copy of ``src`` for as long as the block runs."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        yield Path(shutil.copytree(ROOT / "src", Path(folder) / "src"))


def pytest(source: Path, *tests: str, seconds: float = SECONDS) -> subprocess.CompletedProcess[str]:
    """Run `tests` against the package in `source`."""
    environment = os.environ | {
        "PYTHONPATH": str(source),
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_STORAGE_DIRECTORY": str(source.parent / "hypothesis"),
    }
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider", *tests]
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=seconds, check=False
    )


def judge(mutant: Mutant) -> tuple[Verdict, str]:
    """Run one mutant's test without its check."""
    text = (ROOT / "src" / "rollbook" / mutant.file).read_text()
    if (found := text.count(mutant.snippet)) != 1:
        return Verdict.BROKEN, f"the snippet stands {found} times in {mutant.file}"
    with copied() as source:
        (source / "rollbook" / mutant.file).write_text(text.replace(mutant.snippet, mutant.replacement))
        try:
            done = pytest(source, mutant.test)
        except subprocess.TimeoutExpired:
            return Verdict.BROKEN, f"no verdict in {SECONDS} s"
    match done.returncode:
        case 0:
            return Verdict.SURVIVED, f"{mutant.test} still passes"
        case 1:
            return Verdict.KILLED, ""
        case code:
            return Verdict.BROKEN, f"pytest exits with {code}: {done.stdout[-600:]}{done.stderr[-600:]}"


def run(room: str, mutant: Mutant) -> Result:
    """Judge one mutant and take the time."""
    begin = time.perf_counter()
    verdict, detail = judge(mutant)
    return Result(room, mutant, verdict, detail, round(time.perf_counter() - begin, 2))


def passes_unchanged(tests: list[str]) -> str:
    """Empty where all named tests pass without a mutant; else what pytest says."""
    with copied() as source:
        try:
            done = pytest(source, *tests, seconds=ALL_SECONDS)
        except subprocess.TimeoutExpired:
            return f"they take longer than {ALL_SECONDS} s together"
    return "" if done.returncode == 0 else done.stdout[-2000:] + done.stderr[-2000:]


def main() -> int:
    """Run the mutants that were asked for and print what became of each."""
    parser = argparse.ArgumentParser(description="Take each check away and see the named test turn red.")
    parser.add_argument("--only", default="", help="a part of 'room/name' of the mutants to run")
    parser.add_argument("--json", action="store_true", help="print one JSON document")
    options = parser.parse_args()
    chosen = [
        (room, mutant)
        for room, mutants in rooms().items()
        for mutant in mutants
        if options.only in f"{room}/{mutant.name}"
    ]
    if not chosen:
        print(f"no mutant matches '{options.only}'", file=sys.stderr)
        return 1
    if problem := passes_unchanged(sorted({mutant.test for _, mutant in chosen})):
        print(f"the named tests do not pass as they are:\n{problem}", file=sys.stderr)
        return 1
    with ThreadPoolExecutor(AT_ONCE) as pool:
        results = list(pool.map(lambda pair: run(*pair), chosen))
    if options.json:
        print(json.dumps(summed(results), indent=1))
    else:
        show(results)
    return 0 if all(result.verdict is Verdict.KILLED for result in results) else 1


def summed(results: list[Result]) -> dict[str, object]:
    """The results as plain data: counts, and each mutant that was not killed."""
    left = [result for result in results if result.verdict is not Verdict.KILLED]
    return {
        "mutants": len(results),
        "killed": len(results) - len(left),
        "by_room": dict(Counter(result.room for result in results)),
        "not_killed": [f"{result.room}/{result.mutant.name}: {result.verdict}: {result.detail}" for result in left],
        "slowest_seconds": max(result.seconds for result in results),
    }


def show(results: list[Result]) -> None:
    """Print what was not killed, and how many were."""
    for result in results:
        if result.verdict is not Verdict.KILLED:
            print(f"{result.verdict:9} {result.room}/{result.mutant.name}: {result.detail}")
    killed = sum(result.verdict is Verdict.KILLED for result in results)
    slowest = max(result.seconds for result in results)
    print(f"{killed} of {len(results)} mutants killed, the slowest in {slowest} s")


if __name__ == "__main__":
    sys.exit(main())
