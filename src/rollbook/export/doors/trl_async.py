"""TRL: the fields of `RolloutSample`, which an injected rollout worker puts into the buffer of `AsyncGRPOTrainer`
(trl.experimental.async_grpo, TRL 1.16).

Convention F, not shifted: `input_ids` and `completion_mask` int64, `old_log_probs` float32, 0 off the loss. TRL drops
the first entry of mask and logprobs after its own shift. `advantage` is one number a row, ours, and TRL computes none;
turns with advantages of their own are refused. `model_version` is the oldest among the row's trained tokens, for TRL
drops a row by its staleness; where the engine told none the caller gives one, or the row is refused. `group_id` is a
number, in order of first appearance: rows that share it stay together in a micro-batch, and TRL counts an epoch in
groups. `metrics` are averaged and logged. TRL's loss is the mean over the trained tokens of the batch, so an attempt
weighs by its tokens however it branches.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollbook.errors import UsageError
from rollbook.export.doors.admission import admitted, loss_logprobs, token_advantages, where
from rollbook.export.doors.door import Row
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(
    samples: Sequence[Sample],
    *,
    allow_unfit_logprobs: bool = False,
    version: int | None = None,
    group_id: int | None = None,
) -> list[dict[str, Any]]:
    """One `RolloutSample` as a dictionary for each sample. `version`: of tokens whose engine told none; None: such
    rows are refused. `group_id`: of all of them; None: numbered here."""
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    numbers: dict[tuple[str, str], int] = {}
    for sample in taken:
        numbers.setdefault((sample.run, sample.group), len(numbers) if group_id is None else group_id)
    return [record(sample, numbers[sample.run, sample.group], version) for sample in taken]


def record(sample: Sample, group_id: int, version: int | None = None) -> dict[str, Any]:
    """One `RolloutSample` as a dictionary, without messages: the trainer reads none."""
    advantages = token_advantages(sample)[sample.loss_mask]
    if (advantages != advantages[0]).any():
        raise UsageError(
            f"{where(sample)}: its turns have advantages of their own, and TRL's row holds one for all; close the "
            "groups with another estimator (`rollbook score RUN --estimator dr_grpo --keep`)"
        )
    oldest = version if sample.min_version is None else sample.min_version
    if oldest is None:
        raise UsageError(
            f"{where(sample)}: its engine told no policy version, and TRL drops rows by it; give `version`, or use an "
            "engine that tells"
        )
    return {
        "prompt": [],
        "completion": [],
        "input_ids": sample.token_ids.astype(np.int64),
        "completion_mask": sample.loss_mask.astype(np.int64),
        "old_log_probs": loss_logprobs(sample),
        "advantage": float(advantages[0]),
        "model_version": oldest,
        "group_id": group_id,
        "metrics": {} if sample.reward is None else {"reward": sample.reward},
        "enqueued_at": None,
    }


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What TRL reads."""
    return [_row(each) for each in records]


def _row(record: Mapping[str, Any]) -> Row:
    trains = record["completion_mask"].astype(np.bool_)
    return Row(
        token_ids=record["input_ids"],
        trains=trains,
        logprobs=record["old_log_probs"],
        advantages=np.where(trains, np.float32(record["advantage"]), np.float32(0)),
        reward=record["metrics"].get("reward"),
        group=record["group_id"],
        versions=np.where(trains, np.int32(record["model_version"]), np.int32(-1)),
    )
