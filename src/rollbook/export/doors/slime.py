"""slime: the fields of `Sample` (slime/utils/types.py), as its `to_dict` writes and its `from_dict` reads them.

Convention R, counted from the end: `tokens` is the whole sequence, the last `response_length` of them the response;
`loss_mask` and `rollout_log_probs` are about the response, 0 and 0.0 off the loss. The branches of one attempt share
`rollout_id`, by which slime's loss divides by the mask of the whole attempt, so several branches weigh as one; those
of one group share `group_index`; both are numbers, in order of first appearance. `reward` is of the whole attempt,
as it was scored, and stands on each branch. slime's own group norm counts branches and not attempts, so `metadata`
carries the advantage, penalties of ending rules included, for a reward post-process hook
(`rollbook.run.doors.slime`); turns with advantages of their own are refused. `weight_versions` holds each run of equal
versions once. `rollout_routed_experts` has a row for each token but the last: of the pass over that token. slime
replays every row, so experts that are not known for all of them are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollbook.errors import UsageError
from rollbook.export.doors.admission import admitted, reward_of, where
from rollbook.export.doors.door import Row
from rollbook.export.doors.experts import by_token, passes
from rollbook.export.doors.response import full, response, version_runs
from rollbook.trace.sample import Sample

__all__ = ["Numbers", "core", "record", "records", "rows"]


class Numbers:
    """Whole numbers for ids, in order of first appearance: slime's ids are numbers."""

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], int] = {}
        self._rollouts: dict[tuple[str, str], int] = {}
        self._rows = 0

    def take(self, sample: Sample) -> dict[str, int]:
        """The numbers of one more row."""
        self._rows += 1
        return {
            "group_index": self._groups.setdefault((sample.run, sample.group), len(self._groups)),
            "rollout_id": self._rollouts.setdefault((sample.run, sample.rollout), len(self._rollouts)),
            "index": self._rows - 1,
        }


def records(samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> list[dict[str, Any]]:
    """One `Sample` as a dictionary for each sample."""
    numbers = Numbers()
    return [record(each, numbers) for each in admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)]


def record(sample: Sample, numbers: Numbers) -> dict[str, Any]:
    """One `Sample` as a dictionary."""
    return core(sample, numbers) | {
        "rollout_routed_experts": passes(sample),
        "rollout_top_p_token_ids": None,
        "rollout_top_p_token_offsets": None,
        "custom_rm_path": None,
        "session_id": sample.rollout,
        "multimodal_train_input_id": None,
        "apply_chat_template_kwargs": {},
    }


def core(sample: Sample, numbers: Numbers) -> dict[str, Any]:
    """The fields that slime and Miles share."""
    if sample.advantages is not None:
        raise UsageError(
            f"{where(sample)}: its turns have advantages of their own, and slime takes one for a rollout; close the "
            "groups with another estimator (`rollbook score RUN --estimator dr_grpo --keep`)"
        )
    cut = response(sample)
    return numbers.take(sample) | {
        "prompt": "",
        "tokens": cut.prompt_ids + cut.response_ids,
        "multimodal_inputs": None,
        "multimodal_train_inputs": None,
        "response": "",
        "response_length": len(cut.response_ids),
        "label": None,
        "reward": reward_of(sample),
        "loss_mask": cut.mask,
        "weight_versions": version_runs(sample),
        "rollout_log_probs": cut.logprobs,
        "remove_sample": False,
        "teacher_log_probs": None,
        "status": "truncated" if sample.truncated else "completed",
        "metadata": {
            "run": sample.run,
            "group": sample.group,
            "rollout": sample.rollout,
            "branch": sample.branch,
            "is_last_branch": sample.is_last_branch,
            "advantage": sample.advantage,
            "ending_reason": None if sample.ending is None else str(sample.ending.reason),
        },
        "generate_function_path": None,
        "train_metadata": None,
        "non_generation_time": 0.0,
        "spec_info": {},
        "prefix_cache_info": {},
    }


def rows(records: Sequence[dict[str, Any]]) -> list[Row]:
    """What slime reads."""
    return [_row(each) for each in records]


def _row(record: dict[str, Any]) -> Row:
    tokens = np.array(record["tokens"], np.int64)
    prompt = len(tokens) - record["response_length"]
    experts = record["rollout_routed_experts"]
    return Row(
        token_ids=tokens,
        trains=full(prompt, record["loss_mask"], np.bool_),
        logprobs=full(prompt, record["rollout_log_probs"], np.float32),
        reward=record["reward"],
        rollout=record["rollout_id"],
        group=record["group_index"],
        truncated=record["status"] == "truncated",
        experts=None if experts is None else by_token(experts),
    )
