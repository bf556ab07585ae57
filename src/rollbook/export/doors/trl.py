"""TRL: the columns that a `rollout_func` gives `GRPOTrainer`, exactly one row for each prompt (TRL 1.16).

Convention R: `prompt_ids` is everything before the first sampled token, `completion_ids` everything from there on;
`logprobs` and `env_mask` are about the completion, not shifted, 0.0 and 0 off the loss. `reward` and `rollout` are
columns for reward functions (`rollbook.run.doors.trl.rollout_reward`); None as a reward leaves the row out of TRL's
group mean. TRL computes the advantage, groups by the prompts' order, and reads `logprobs` with vLLM only.

TRL has one row for a prompt and fails over a batch that lacks one. So a rollout of several branches is refused; and a
rollout that may not train stands as `without_vote`: its own tokens, a mask of zeros, no reward. Such a row changes
neither the group mean nor, with the loss type ``dapo`` (TRL's default, which divides by the tokens that train), the
loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from rollbook.errors import UsageError
from rollbook.export.doors.admission import admitted, refuse_branches
from rollbook.export.doors.door import Row
from rollbook.export.doors.response import full, response
from rollbook.trace.node import TokenIds
from rollbook.trace.sample import Sample

__all__ = ["columns", "record", "records", "rows", "without_vote"]

_NAMES = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "rollout")


def records(samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> dict[str, list[Any]]:
    """The columns of a batch, a row for each rollout. Raises `UsageError` where one gives several samples."""
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    refuse_branches(
        taken,
        "TRL's rollout_func has one row for each prompt, and this rollout has several branches; use an agent and a "
        "context policy that keep one, or a door that takes several (trl_async)",
    )
    return columns(record(sample) for sample in taken)


def record(sample: Sample) -> dict[str, Any]:
    """The row of one rollout."""
    cut = response(sample)
    return {
        "prompt_ids": cut.prompt_ids,
        "completion_ids": cut.response_ids,
        "logprobs": cut.logprobs,
        "env_mask": cut.mask,
        "reward": sample.reward,
        "rollout": sample.rollout,
    }


def without_vote(rollout: str, token_ids: TokenIds, prompt_len: int) -> dict[str, Any]:
    """The row of a rollout that may not train. `token_ids`: int32, shape (tokens,), of its last branch; `prompt_len`:
    tokens before the first sampled one. Where nothing was sampled the last token of the prompt stands as completion,
    for TRL takes no empty one. Raises `UsageError` where there are not two tokens."""
    if len(token_ids) < 2:
        raise UsageError(
            f"rollout {rollout!a} holds {len(token_ids)} tokens, so TRL has no row for it, and TRL takes no batch that "
            "lacks one: see how the rollout ended, and have the ending rules retry that"
        )
    start = min(max(prompt_len, 1), len(token_ids) - 1)
    behind = len(token_ids) - start
    return {
        "prompt_ids": token_ids[:start].tolist(),
        "completion_ids": token_ids[start:].tolist(),
        "logprobs": [0.0] * behind,
        "env_mask": [0] * behind,
        "reward": None,
        "rollout": rollout,
    }


def columns(given: Iterable[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Rows as columns."""
    kept = list(given)
    return {name: [row[name] for row in kept] for name in _NAMES}


def rows(records: Mapping[str, Sequence[Any]]) -> list[Row]:
    """What TRL reads."""
    return [_row({name: records[name][place] for name in _NAMES}) for place in range(len(records["prompt_ids"]))]


def _row(record: Mapping[str, Any]) -> Row:
    prompt = len(record["prompt_ids"])
    return Row(
        token_ids=np.array([*record["prompt_ids"], *record["completion_ids"]], np.int64),
        trains=full(prompt, record["env_mask"], np.bool_),
        logprobs=full(prompt, record["logprobs"], np.float32),
        reward=record["reward"],
        rollout=record["rollout"],
    )
