"""The README's Python block runs as it stands, on the real model."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.docs.blocks import ROOT, blocks

SECONDS = 240


def test_readme_in_python_on_the_real_model(folder: Path) -> None:
    """What the model says is not checked, only that four rollouts are told."""
    (program,) = [block for block in blocks(ROOT / "README.md") if block.words == ("model",)]
    file = folder / "readme.py"
    file.write_text(program.text)
    done = subprocess.run(
        [sys.executable, "-W", "error", str(file)],
        capture_output=True,
        text=True,
        timeout=SECONDS,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    number = r"(-?\d+\.\d+|None)"
    rows = re.findall(rf"^[a-z_]+/[a-z_]+ {number} {number}$", done.stdout, re.MULTILINE)
    assert len(rows) == len(done.stdout.splitlines()) == 4, done.stdout
