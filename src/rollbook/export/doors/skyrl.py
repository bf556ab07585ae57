"""SkyRL: a `GeneratorOutput` (skyrl/train/generators/base.py), parallel lists with an entry for each branch.

Convention R: `response_ids`, `loss_masks` and `rollout_logprobs` are about the response, not shifted, 0 off the loss.
Where an attempt has several branches the trainer must run step-wise: rows of one trajectory stand together, and the
last of them has `is_last_step`; SkyRL computes the advantage from the last rows alone, and gives it to all rows of
their trajectory. `trajectory_ids` hold the fields of `TrajectoryID`: the group, by which members are compared, and the
attempt's number within it. The reward is of the whole attempt and stands on each row. `rollout_expert_indices` has a
row for each token but the last, of the pass over it. `stop_reasons` are ``length`` for a truncated attempt (SkyRL can
mask all others than ``stop``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollbook.export.doors.admission import admitted, reward_of
from rollbook.export.doors.door import Row
from rollbook.export.doors.experts import all_passes, by_token
from rollbook.export.doors.response import full, response
from rollbook.trace.sample import Sample

__all__ = ["records", "rows"]


def records(samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> dict[str, Any]:
    """The lists; `trajectory_ids` holds dictionaries, for `TrajectoryID(**each)`."""
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    cut = [response(sample) for sample in taken]
    names = [(sample.run, sample.rollout) for sample in taken]
    return {
        "prompt_token_ids": [each.prompt_ids for each in cut],
        "response_ids": [each.response_ids for each in cut],
        "rewards": [reward_of(sample) for sample in taken],
        "loss_masks": [each.mask for each in cut],
        "stop_reasons": ["length" if sample.truncated else "stop" for sample in taken],
        "rollout_metrics": None,
        "rollout_logprobs": [each.logprobs for each in cut],
        "trajectory_ids": _trajectories(taken),
        "trajectory_generation_times": None,
        "trajectory_time_splits": None,
        "rollout_expert_indices": all_passes(taken),
        "rollout_sample_support": None,
        "is_last_step": [place + 1 == len(names) or names[place + 1] != each for place, each in enumerate(names)],
        "env_metrics": None,
        "pixel_values": None,
        "image_grid_thw": None,
    }


def _trajectories(samples: Sequence[Sample]) -> list[dict[str, Any]]:
    """Members are numbered within their group, in order of first appearance."""
    found: dict[tuple[str, str], dict[str, int]] = {}
    ids: list[dict[str, Any]] = []
    for sample in samples:
        members = found.setdefault((sample.run, sample.group), {})
        number = members.setdefault(sample.rollout, len(members))
        ids.append({"instance_id": f"{sample.run}/{sample.group}", "repetition_id": number})
    return ids


def rows(records: Mapping[str, Any]) -> list[Row]:
    """What SkyRL reads."""
    return [_row(records, place) for place in range(len(records["response_ids"]))]


def _row(records: Mapping[str, Any], place: int) -> Row:
    prompt = len(records["prompt_token_ids"][place])
    name, experts = records["trajectory_ids"][place], records["rollout_expert_indices"]
    return Row(
        token_ids=np.array([*records["prompt_token_ids"][place], *records["response_ids"][place]], np.int64),
        trains=full(prompt, records["loss_masks"][place], np.bool_),
        logprobs=full(prompt, records["rollout_logprobs"][place], np.float32),
        reward=records["rewards"][place],
        rollout=(name["instance_id"], name["repetition_id"]),
        group=name["instance_id"],
        is_last=records["is_last_step"][place],
        truncated=records["stop_reasons"][place] == "length",
        experts=None if experts is None else by_token(experts[place]),
    )
