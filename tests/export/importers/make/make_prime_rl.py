"""``prime_rl.jsonl``: lines of prime-rl's own exporter. Run as ``make_prime_rl.py CHECKOUT OUT``, with torch."""

from __future__ import annotations

import sys
import tempfile
import types
from pathlib import Path

import torch

source = Path(sys.argv[1], "src/prime_rl/trainer/rl/token_export.py").read_text()
loss = Path(sys.argv[1], "src/prime_rl/trainer/rl/loss.py").read_text()
start = loss.index("def compute_importance_ratio_and_mismatch_kl")
ratio = loss[start : loss.index("\n\n\n", start)]
kept = [line for line in source.splitlines() if not line.startswith("from prime_rl")]
module = types.ModuleType("token_export")
exec("from torch import Tensor\nimport torch\nclass DefaultLossConfig: pass\nclass TrainerConfig: pass\n", vars(module))
exec(ratio, vars(module))
exec("\n".join(kept), vars(module))


def batch(mask: list[bool], logprobs: list[float]) -> dict[str, object]:
    """One packed sequence."""
    count = len(mask)
    return {
        "input_ids": torch.arange(40, 40 + count),
        "position_ids": torch.arange(count),
        "loss_mask": torch.tensor(mask),
        "advantages": torch.tensor([0.5 if held else 0.0 for held in mask]),
        "inference_logprobs": torch.tensor(logprobs),
        "env_names": ["sums"] * count,
    }


with tempfile.TemporaryDirectory() as folder:
    exporter = module.TokenExporter(Path(folder), 0)
    for step, (mask, logprobs) in enumerate(
        [
            ([False, False, True, True], [0.0, 0.0, -0.25, -1.5]),
            ([False, True, False, False, True], [0.0, -0.5, 0.0, 0.0, -0.125]),
        ]
    ):
        output = {"logprobs": torch.tensor(logprobs) - 0.01, "entropy": torch.ones(len(mask))}
        exporter.export(3, step, batch(mask, logprobs), output, [len(mask)], None)
    (made,) = Path(folder).rglob("rank_0.jsonl")
    Path(sys.argv[2]).write_bytes(made.read_bytes())
