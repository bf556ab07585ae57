"""NeMo-RL: the columns of the `BatchedDataDict` that its clipped policy-gradient loss takes
(nemo_rl/algorithms/loss/loss_functions.py), a row for each branch, padded on the right.

Convention F, not shifted: the loss drops the first column of `token_mask`, `generation_logprobs` and `advantages`
against the logprobs of the next tokens. Off the loss they are 0. Advantages are ours, so that branches of an attempt do
not count as members; the token-level loss divides by the trained tokens of the batch, so an attempt weighs by its
tokens however it branches. `sample_mask` is 1 for each row: members that may not train are not there. `prev_logprobs`
is the trainer's own to compute.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.export.doors.admission import admitted, loss_logprobs, reward_of, token_advantages
from rollbook.export.doors.door import Row
from rollbook.export.doors.padding import padded
from rollbook.trace.sample import Sample

__all__ = ["records", "rows"]


def records(
    samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False, pad_id: int = 0
) -> dict[str, npt.NDArray[Any]]:
    """The columns, as arrays. `pad_id`: the id behind a shorter row."""
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    return {
        "input_ids": padded([sample.token_ids for sample in taken], pad_id, np.int64),
        "token_mask": padded([sample.loss_mask for sample in taken], 0, np.int64),
        "generation_logprobs": padded([loss_logprobs(sample) for sample in taken], 0, np.float32),
        "advantages": padded([token_advantages(sample) for sample in taken], 0, np.float32),
        "input_lengths": np.array([len(sample) for sample in taken], np.int64),
        "sample_mask": np.ones(len(taken), np.float32),
        "total_reward": np.array([reward_of(sample) for sample in taken], np.float32),
        "truncated": np.array([sample.truncated for sample in taken], np.bool_),
    }


def rows(records: Mapping[str, npt.NDArray[Any]]) -> list[Row]:
    """What NeMo-RL reads."""
    return [_row(records, place, int(length)) for place, length in enumerate(records["input_lengths"])]


def _row(records: Mapping[str, npt.NDArray[Any]], place: int, length: int) -> Row:
    return Row(
        token_ids=records["input_ids"][place, :length],
        trains=records["token_mask"][place, :length].astype(np.bool_) & bool(records["sample_mask"][place]),
        logprobs=records["generation_logprobs"][place, :length],
        advantages=records["advantages"][place, :length],
        reward=float(records["total_reward"][place]),
        truncated=bool(records["truncated"][place]),
    )
