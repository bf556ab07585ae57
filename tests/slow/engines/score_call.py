"""The float32 pass of `score.py`, called from tests."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tests.slow.engines.models import EngineModels

__all__ = ["Apart", "Scorer"]

Rows = Sequence[tuple[list[int], list[int]]]


@dataclass(frozen=True, slots=True)
class Apart:
    """How far an engine's logprobs are from the float32 pass, in nats."""

    tokens: int
    mean: float
    p99: float
    most: float

    @classmethod
    def of(cls, engine: npt.NDArray[np.float32], torch: npt.NDArray[np.float32]) -> Apart:
        apart = np.abs(engine.astype(np.float64) - torch.astype(np.float64))
        return cls(len(apart), float(apart.mean()), float(np.quantile(apart, 0.99)), float(apart.max()))


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores with the model as it is, or with the changed copy."""

    python: Path
    models: EngineModels

    def score(self, rows: Rows, *, changed: bool = False) -> npt.NDArray[np.float32]:
        """The logprobs of all replies, one behind the other; rows are (prompt ids, reply ids)."""
        script = Path(__file__).parent / "score.py"
        folder = self.models.changed if changed else self.models.hf
        done = subprocess.run(
            [str(self.python), str(script), str(folder)],
            input=json.dumps(rows),
            capture_output=True,
            text=True,
            check=False,
            env=os.environ | {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"},
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return np.concatenate([np.array(row, np.float32) for row in json.loads(done.stdout)])
