"""prime-rl: the fields of `TrainingSample` (prime_rl/transports/rollouts/types.py), one for each branch.

Convention F, not shifted, plain lists: `mask`, `logprobs`, `temperatures`, `advantages`; off the loss 0. The trainer
divides the logits of each token by its temperature, so the logprobs must be of that distribution; a sample that was
drawn at several temperatures does not say which token at which, and is refused. Advantages are ours, one a token; the
trainer's loss sums over tokens and divides by the trained tokens of the whole batch, so an attempt weighs by its tokens
however it branches. `env_name` groups metrics. `routed_experts` has a row for each token, of the pass over it, the last
of zeros, as raw bytes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.doors.admission import admitted, loss_logprobs, token_advantages, where
from rollbook.export.doors.door import Row
from rollbook.export.doors.experts import by_token, passes
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(
    samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False, env_name: str = "rollbook"
) -> list[dict[str, Any]]:
    """One `TrainingSample` as a dictionary for each sample. `env_name`: under which the trainer keeps metrics."""
    return [record(each, env_name) for each in admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)]


def record(sample: Sample, env_name: str) -> dict[str, Any]:
    """One `TrainingSample` as a dictionary."""
    return {
        "token_ids": sample.token_ids.tolist(),
        "mask": sample.loss_mask.tolist(),
        "logprobs": loss_logprobs(sample).tolist(),
        "temperatures": [_temperature(sample)] * len(sample),
        "env_name": env_name,
        "advantages": token_advantages(sample).tolist(),
        "routed_experts": _experts(sample),
    }


def _temperature(sample: Sample) -> float:
    found = {sampling.temperature for sampling in sample.samplings}
    if len(found) != 1:
        raise UsageError(
            f"{where(sample)}: its tokens were drawn at {len(found)} temperatures, and prime-rl needs that of each"
        )
    return found.pop()


def _experts(sample: Sample) -> dict[str, Any] | None:
    """``{"data", "shape", "dtype"}``, the fields of prime-rl's `RoutedExperts`."""
    experts = passes(sample)
    if experts is None:
        return None
    rows = np.concatenate([experts, np.zeros((1, *experts.shape[1:]), np.int32)])
    return {"data": rows.tobytes(), "shape": list(rows.shape), "dtype": "int32"}


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What prime-rl reads."""
    return [
        Row(
            token_ids=np.array(each["token_ids"], np.int64),
            trains=np.array(each["mask"], np.bool_),
            logprobs=np.array(each["logprobs"], np.float32),
            advantages=np.array(each["advantages"], np.float32),
            experts=_read_experts(each["routed_experts"]),
        )
        for each in records
    ]


def _read_experts(given: Mapping[str, Any] | None) -> npt.NDArray[np.int32] | None:
    """By sampled token, from a row for the pass over each token."""
    if given is None:
        return None
    return by_token(np.frombuffer(given["data"], np.int32).reshape(given["shape"])[:-1])
