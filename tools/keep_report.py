"""Run a command that prints one JSON document and keep it, with the versions that it ran on, under docs/reports.

    python tools/keep_report.py NAME -- COMMAND...

What the command printed is printed again; the exit code is the command's.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

REPORTS = Path(__file__).resolve().parent.parent / "docs" / "reports"
PACKAGES = ("rollbook", "msgspec", "numpy", "tokenizers", "zstandard", "jinja2", "xllamacpp", "hypothesis", "pytest")


def main(name: str, command: list[str]) -> int:
    """Run, keep, print."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    kept = {
        "exit_code": done.returncode,
        "versions": {"python": platform.python_version(), **{each: version(each) for each in PACKAGES}},
        "result": json.loads(done.stdout),
    }
    REPORTS.mkdir(exist_ok=True)
    (REPORTS / f"{name}.json").write_text(json.dumps(kept, indent=1) + "\n")
    print(json.dumps(kept["result"], indent=1))
    return done.returncode


if __name__ == "__main__":
    if len(sys.argv) < 4 or sys.argv[2] != "--":
        sys.exit("usage: python tools/keep_report.py NAME -- COMMAND...")
    sys.exit(main(sys.argv[1], sys.argv[3:]))
