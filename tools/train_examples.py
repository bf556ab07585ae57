"""The two examples of training, held to what they promise. Prints one JSON document; exit code 1 where one is broken.

    python tools/train_examples.py tiny [SEED...]
    python tools/train_examples.py smollm2

Each seed is one `rollbook train` in a process of its own; its CPU time is counted with its children. Success is the
mean reward on held-out tasks before the first and after the last step. The pictures are kept in docs/figures.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FIGURES = ROOT / "docs" / "figures"


@dataclass(frozen=True)
class Example:
    """One training and its promise."""

    command: tuple[str, ...]
    seeds: tuple[int, ...]
    most_cpu: float
    """Seconds of one seed, children included."""
    gain: float | None = None
    """How much higher the held-out reward is at the end, at least."""
    factor: float | None = None
    """How many times as high, at least."""

    def keeps(self, start: float, end: float, cpu: float) -> bool:
        """True where the promise holds."""
        higher = (self.gain is None or end >= start + self.gain) and (self.factor is None or end >= start * self.factor)
        return higher and cpu <= self.most_cpu


TINY = (
    "calculator", "--option", "difficulty=1", "--policy", "local:tiny", "--steps", "24", "--tasks", "16", "--group",
    "8", "--lr", "4e-4", "--max-turns", "4", "--held-out", "128",
)  # fmt: skip
SMOLLM2 = (
    "examples.one_digit:OneDigit", "--policy", "local:smollm2-135m", "--steps", "15", "--tasks", "4", "--group", "8",
    "--lr", "1e-5", "--max-turns", "1", "--max-generation", "16", "--held-out", "24",
)  # fmt: skip
EXAMPLES = {
    "tiny": Example(TINY, (0, 1, 2), most_cpu=400.0, gain=0.35),
    "smollm2": Example(SMOLLM2, (0,), most_cpu=1800.0, factor=2.0),
}


def main(name: str, seeds: list[int]) -> int:
    """Train with each seed and print what came out."""
    example = EXAMPLES[name]
    rows = [_row(name, example, seed) for seed in seeds or example.seeds]
    command = " ".join(("rollbook train", *example.command, "--seed SEED"))
    print(json.dumps({"example": name, "command": command, "seeds": rows}, indent=1))
    return 0 if all(row["kept"] for row in rows) else 1


def _row(name: str, example: Example, seed: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as scratch:
        out = Path(scratch) / "run"
        began = time.monotonic()
        document, cpu = _trained([*example.command, "--seed", str(seed), "--out", str(out), "--json"])
        wall = time.monotonic() - began
        FIGURES.mkdir(exist_ok=True)
        shutil.copyfile(out / "training.png", FIGURES / f"train-{name}-{seed}.png")
    start, end, steps = document["held_out_start"], document["held_out_end"], document["steps"]
    return {
        "seed": seed,
        "held_out_start": start,
        "held_out_end": end,
        "reward_first": steps[0]["reward"],
        "reward_last": steps[-1]["reward"],
        "well_formed_first": steps[0]["well_formed"],
        "well_formed_last": steps[-1]["well_formed"],
        "mismatch_most": max(each["mismatch"]["most"] for each in steps),
        "mismatch_mean": sum(each["mismatch"]["mean"] for each in steps) / len(steps),
        "steps": len(steps),
        "cpu_seconds": round(cpu, 1),
        "wall_seconds": round(wall, 1),
        "kept": example.keeps(start, end, cpu),
    }


def _trained(arguments: list[str]) -> tuple[dict[str, Any], float]:
    """What `rollbook train` says, and the CPU seconds that it took with its children."""
    command = [sys.executable, "-m", "rollbook.cli", "train", *arguments]
    with tempfile.TemporaryFile() as said:
        process = subprocess.Popen(command, stdout=said, cwd=ROOT)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            sys.exit(f"{' '.join(command)} failed: exit code {process.returncode}")
        said.seek(0)
        return json.load(said), usage.ru_utime + usage.ru_stime


if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in EXAMPLES:
        sys.exit(f"usage: python tools/train_examples.py {'|'.join(EXAMPLES)} [SEED...]")
    sys.exit(main(sys.argv[1], [int(each) for each in sys.argv[2:]]))
