"""Make the environments of the peers that `make bench-peers` runs beside us: each in a folder of its own.

    python tools/peers_env.py strands FOLDER
    python tools/peers_env.py verifiers FOLDER

Does nothing where the folder holds these versions already. strands-env needs Python 3.12 or newer: where this one is
older, a newer one is looked for on the PATH.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

MARK = "peers.txt"


@dataclass(frozen=True)
class Peer:
    """What is installed."""

    wanted: tuple[str, ...]
    least: tuple[int, int]
    """The oldest Python that it takes."""


PEERS = {
    "strands": Peer(("strands-env==0.7.3", "strands-sglang==0.6.2"), (3, 12)),
    "verifiers": Peer(("verifiers==0.4.0", "renderers==0.1.12"), (3, 11)),
}


def main(name: str, folder: Path) -> None:
    """Make it, or leave it."""
    peer, mark = PEERS[name], folder / MARK
    if mark.is_file() and mark.read_text().split() == list(peer.wanted):
        return
    # what the commands say goes to stderr: a report may be read from stdout
    subprocess.run([*_python(peer), "-m", "venv", "--clear", str(folder)], check=True, stdout=sys.stderr)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "--quiet"]
    subprocess.run([*pip, "install", *peer.wanted], check=True, stdout=sys.stderr)
    mark.write_text("\n".join(peer.wanted))


def _python(peer: Peer) -> Sequence[str]:
    if sys.version_info >= peer.least:
        return [sys.executable]
    for minor in range(peer.least[1], peer.least[1] + 3):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "-c", ""], check=False, capture_output=True).returncode == 0:
            return [found]
    sys.exit(f"{peer.wanted[0]} needs Python {'.'.join(map(str, peer.least))} or newer: put one on the PATH")


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in PEERS:
        sys.exit("usage: python tools/peers_env.py strands|verifiers FOLDER")
    main(sys.argv[1], Path(sys.argv[2]))
