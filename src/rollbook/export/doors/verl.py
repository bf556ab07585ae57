"""verl: the fields of `AgentLoopOutput` (verl/experimental/agent_loop), one record for each branch of an attempt.

Convention R. `response_mask` is 1 on tokens that train and 0 on observations and on turns out of the loss;
`response_logprobs` are unshifted and 0.0 off the mask. `reward_score` is the reward of the whole attempt on every
branch (verl copies the last one's to the earlier ones anyway) and lands on the last response token, whether that one
trains or not. An agent loop returns the records of one attempt as one list: verl then keys them by its own uid and
their index, so the attempt's id stands in `extra_fields` too. verl has no field for how an attempt ended.
`routed_experts` has a row for each token but the last, of the pass over that token: verl replays every row, so experts
that are not known for all of them are refused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rollbook.export.doors.admission import admitted, reward_of
from rollbook.export.doors.door import Row
from rollbook.export.doors.experts import by_token, passes
from rollbook.export.doors.response import full, response
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> list[dict[str, Any]]:
    """The keyword arguments of one `AgentLoopOutput` for each sample."""
    return [record(each) for each in admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)]


def record(sample: Sample) -> dict[str, Any]:
    """The keyword arguments of one `AgentLoopOutput`."""
    cut, experts = response(sample), passes(sample)
    return {
        "prompt_ids": cut.prompt_ids,
        "response_ids": cut.response_ids,
        "response_mask": cut.mask,
        "response_logprobs": cut.logprobs,
        "routed_experts": None if experts is None else experts.astype(np.int16),
        "reward_score": reward_of(sample),
        "num_turns": len(np.unique(sample.turn_id[sample.sampled])),
        "metrics": {},
        "extra_fields": extra_fields(sample),
    }


def extra_fields(sample: Sample) -> dict[str, Any]:
    """What verl has no field for, and the versions by which it measures staleness."""
    fields: dict[str, Any] = {
        "rollout_id": sample.rollout,
        "group_id": sample.group,
        "branch": sample.branch,
        "is_last_branch": sample.is_last_branch,
        "truncated": sample.truncated,
        "ending_reason": None if sample.ending is None else str(sample.ending.reason),
        "reward_extra_info": {},
    }
    if sample.min_version is not None:
        fields |= {"min_global_steps": sample.min_version, "max_global_steps": sample.max_version}
    return fields


def rows(records: Sequence[dict[str, Any]]) -> list[Row]:
    """What verl reads."""
    return [_row(each) for each in records]


def _row(record: dict[str, Any]) -> Row:
    prompt, extra = len(record["prompt_ids"]), record["extra_fields"]
    return Row(
        token_ids=np.array(record["prompt_ids"] + record["response_ids"], np.int64),
        trains=full(prompt, record["response_mask"], np.bool_),
        logprobs=full(prompt, record["response_logprobs"], np.float32),
        reward=record["reward_score"],
        rollout=extra["rollout_id"],
        group=extra["group_id"],
        truncated=extra["truncated"],
        experts=None if record["routed_experts"] is None else by_token(record["routed_experts"]),
    )
