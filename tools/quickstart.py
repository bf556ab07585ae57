"""What `make quickstart` runs after the install: a small real model on a tool-using environment, and what came out.

The same as ``rollbook run calculator --policy local --tasks 8 --group 4 --out runs/quickstart``; where that folder is
taken, the next free name is used.
"""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

from rollbook.cli import app

RUNS = Path("runs")


def free_folder() -> Path:
    """`runs/quickstart`, or with the first number that is free behind it."""
    folder, number = RUNS / "quickstart", 1
    while folder.exists():
        number += 1
        folder = RUNS / f"quickstart-{number}"
    return folder


def program() -> str:
    """How the console script of this environment is called from here."""
    script = Path(sys.executable).with_name("rollbook")
    return str(script.relative_to(Path.cwd())) if script.is_relative_to(Path.cwd()) else str(script)


def main() -> None:
    words = ["run", "calculator", "--policy", "local", "--tasks", "8", "--group", "4", "--out", str(free_folder())]
    print(f"$ {shlex.join([program(), *words])}\n", flush=True)
    app(words, prog_name=program())


if __name__ == "__main__":
    main()
