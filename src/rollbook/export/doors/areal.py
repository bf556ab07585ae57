"""AReaL: what a workflow's `arun_episode` returns, a dictionary of arrays [branches, tokens] for each attempt.

Convention F, not shifted (the trainer rolls by one itself), padded on the right: `input_ids` int64, `attention_mask`
bool, `loss_mask` int64, `logprobs` float32, 0 off the loss, and `versions` int64, the policy version of each sampled
token, -1 elsewhere and where the engine told none. `rewards` float32 [branches]: of the whole attempt, on each of its
branches. `turn_ids` int64, the number of the turn, -1 off the sampled tokens, is read by AReaL's main branch and not
by 1.0.4. AReaL computes the advantage; 1.0.4's group norm counts rows and not attempts, so where attempts branch
normalise by batch, or not at all.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.export.doors.admission import admitted, loss_logprobs, reward_of
from rollbook.export.doors.door import Row
from rollbook.export.doors.padding import padded
from rollbook.trace.packing import attention_mask
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(
    samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False, pad_id: int = 0
) -> list[dict[str, npt.NDArray[Any]]]:
    """A dictionary for each attempt. `pad_id`: the id behind a shorter branch."""
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    return [record(list(branches), pad_id) for _, branches in groupby(taken, lambda each: (each.run, each.rollout))]


def record(samples: Sequence[Sample], pad_id: int = 0) -> dict[str, npt.NDArray[Any]]:
    """The dictionary of one attempt."""
    return {
        "input_ids": padded([sample.token_ids for sample in samples], pad_id, np.int64),
        "attention_mask": attention_mask([len(sample) for sample in samples]),
        "loss_mask": padded([sample.loss_mask for sample in samples], 0, np.int64),
        "logprobs": padded([loss_logprobs(sample) for sample in samples], 0, np.float32),
        "versions": padded([sample.policy_version for sample in samples], -1, np.int64),
        "turn_ids": padded([sample.turn_id for sample in samples], -1, np.int64),
        "rewards": np.array([reward_of(sample) for sample in samples], np.float32),
    }


def rows(records: Sequence[Mapping[str, npt.NDArray[Any]]]) -> list[Row]:
    """What AReaL reads."""
    return [
        _row(each, attempt, place) for attempt, each in enumerate(records) for place in range(len(each["input_ids"]))
    ]


def _row(record: Mapping[str, npt.NDArray[Any]], attempt: int, place: int) -> Row:
    there = record["attention_mask"][place]
    return Row(
        token_ids=record["input_ids"][place][there],
        trains=record["loss_mask"][place][there].astype(np.bool_),
        logprobs=record["logprobs"][place][there],
        reward=float(record["rewards"][place]),
        rollout=attempt,
        versions=record["versions"][place][there].astype(np.int32),
    )
