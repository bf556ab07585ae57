"""verl: a `DataProto` as its trainer holds it (verl/protocol.py), as numpy arrays for `DataProto.from_dict`.

Prompts are padded on the left, responses on the right, so `input_ids` is [padding, prompt, response, padding] and
every row's response begins in the same column; convention R on `responses`, `response_mask`, `rollout_log_probs`,
`rm_scores`, `token_level_rewards` and `advantages`. The reward lands on the last response token, whether that one
trains or not. Advantages are ours (verl's GRPO would count each branch as a member), exactly 0 off the mask, and
`returns` are the same. verl weighs by token (`loss_agg_mode` "token-mean"), which counts an attempt the same however
it branches, or by row; `rollout_weight` is each row's part of its attempt, for a loss that weighs by row. `uid` is
the group. `routed_experts` has a row for each column, of the pass over its token, and is refused where one is not
known. Nothing is cut to fit: a row longer than `prompt_length` or `response_length` is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from rollbook.errors import UsageError
from rollbook.export.doors.admission import admitted, reward_of, token_advantages, where
from rollbook.export.doors.door import Row
from rollbook.export.doors.experts import all_passes, by_token
from rollbook.export.doors.response import full, response
from rollbook.trace.sample import Sample

__all__ = ["records", "rows"]


def records(
    samples: Sequence[Sample],
    *,
    allow_unfit_logprobs: bool = False,
    prompt_length: int | None = None,
    response_length: int | None = None,
    pad_id: int = 0,
) -> dict[str, dict[str, npt.NDArray[Any]]]:
    """``{"tensors": ..., "non_tensors": ...}``, the arguments of `DataProto.from_dict` once the first are tensors.

    `prompt_length`, `response_length`: columns (None: those of the longest row). `pad_id`: the id that fills them.
    """
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    cut = [response(each) for each in taken]
    prompts = _columns(taken, [len(each.prompt_ids) for each in cut], prompt_length, "prompt")
    answers = _columns(taken, [len(each.response_ids) for each in cut], response_length, "response")
    size = len(taken)
    ids = np.full((size, prompts + answers), pad_id, np.int64)
    attention = np.zeros_like(ids)
    mask = np.zeros((size, answers), np.int64)
    logprobs, scores, advantages = (np.zeros((size, answers), np.float32) for _ in range(3))
    for index, (sample, each) in enumerate(zip(taken, cut, strict=True)):
        length, start = len(each.response_ids), prompts - len(each.prompt_ids)
        ids[index, start : prompts + length] = sample.token_ids
        attention[index, start : prompts + length] = 1
        mask[index, :length] = each.mask
        logprobs[index, :length] = each.logprobs
        scores[index, length - 1] = reward_of(sample)
        advantages[index, :length] = token_advantages(sample)[sample.prompt_len :]
    return {
        "tensors": _experts(taken, prompts, ids.shape)
        | {
            "prompts": ids[:, :prompts],
            "responses": ids[:, prompts:],
            "input_ids": ids,
            "attention_mask": attention,
            "position_ids": np.maximum(attention.cumsum(axis=1) - 1, 0),
            "response_mask": mask,
            "rollout_log_probs": logprobs,
            "rm_scores": scores,
            "token_level_scores": scores,
            "token_level_rewards": scores,
            "advantages": advantages,
            "returns": advantages,
            "rollout_weight": np.array([sample.weight for sample in taken], np.float32),
        },
        "non_tensors": _named(taken),
    }


def _experts(samples: Sequence[Sample], prompts: int, shape: tuple[int, int]) -> dict[str, npt.NDArray[Any]]:
    """A row for each column, of the pass over its token; 0 in the padding and for the last token. Empty where there are
    none."""
    found = all_passes(samples)
    if found is None:
        return {}
    columns = np.zeros((*shape, *found[0].shape[1:]), np.int16)
    for index, (sample, each) in enumerate(zip(samples, found, strict=True)):
        start = prompts - sample.prompt_len
        columns[index, start : start + len(each)] = each
    return {"routed_experts": columns}


def _columns(samples: Sequence[Sample], lengths: Sequence[int], limit: int | None, what: str) -> int:
    longest = max(lengths)
    if limit is not None and longest > limit:
        sample = samples[lengths.index(longest)]
        raise UsageError(f"{where(sample)}: a {what} of {longest} tokens, and the batch has {limit} columns for it")
    return longest if limit is None else limit


def _named(samples: Sequence[Sample]) -> dict[str, npt.NDArray[Any]]:
    return {
        "uid": _objects(sample.group for sample in samples),
        "rollout_id": _objects(sample.rollout for sample in samples),
        "branch": np.array([sample.branch for sample in samples], np.int64),
        "is_last_branch": np.array([sample.is_last_branch for sample in samples], np.bool_),
        "truncated": np.array([sample.truncated for sample in samples], np.bool_),
        "__num_turns__": np.array([len(np.unique(each.turn_id[each.sampled])) for each in samples], np.int32),
        "min_global_steps": _objects(sample.min_version for sample in samples),
        "max_global_steps": _objects(sample.max_version for sample in samples),
    }


def _objects(values: Any) -> npt.NDArray[np.object_]:
    given = list(values)
    kept = np.empty(len(given), np.object_)
    kept[:] = given
    return kept


def rows(records: Mapping[str, Mapping[str, npt.NDArray[Any]]]) -> list[Row]:
    """What verl reads."""
    tensors, named = records["tensors"], records["non_tensors"]
    return [_row(tensors, named, index) for index in range(len(tensors["input_ids"]))]


def _row(tensors: Mapping[str, npt.NDArray[Any]], named: Mapping[str, npt.NDArray[Any]], index: int) -> Row:
    there = tensors["attention_mask"][index].astype(np.bool_)
    columns = tensors["prompts"].shape[1]
    prompt = int(there[:columns].sum())
    answer = there[columns:]
    return Row(
        token_ids=tensors["input_ids"][index][there],
        trains=full(prompt, tensors["response_mask"][index][answer], np.bool_),
        logprobs=full(prompt, tensors["rollout_log_probs"][index][answer], np.float32),
        advantages=full(prompt, tensors["advantages"][index][answer], np.float32),
        reward=float(tensors["token_level_rewards"][index].sum()),
        rollout=named["rollout_id"][index],
        group=named["uid"][index],
        weight=float(tensors["rollout_weight"][index]),
        truncated=bool(named["truncated"][index]),
        experts=by_token(tensors["routed_experts"][index][there][:-1]) if "routed_experts" in tensors else None,
    )
