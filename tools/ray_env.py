"""Make the environment of the tests on a Ray cluster: Ray and this package, in a folder of its own.

    python tools/ray_env.py FOLDER

Does nothing where the folder holds this already. About 500 MB.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
WANTED = ("ray==2.60.0",)
OURS = ".[engines,objects]"
MARK = "ray.txt"


def main(folder: Path) -> None:
    """Make it, or leave it."""
    mark, wanted = folder / MARK, "\n".join((*WANTED, OURS, (ROOT / "pyproject.toml").read_text()))
    if mark.is_file() and mark.read_text() == wanted:
        return
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # what pip says goes to stderr: a report may be read from stdout
    subprocess.run([*pip, "install", *WANTED, "--editable", OURS], check=True, stdout=sys.stderr, cwd=ROOT)
    mark.write_text(wanted)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/ray_env.py FOLDER")
    main(Path(sys.argv[1]))
