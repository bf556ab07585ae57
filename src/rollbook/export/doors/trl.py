"""TRL's `GRPOTrainer.rollout_func`: one row for each prompt, as columns (TRL 1.16).

Convention (R: over the response, from the first sampled token on, tool and user tokens included):

==============  ==========  ==========================================================================================
prompt_ids      list[int]   everything before the first sampled token
completion_ids  list[int]   R: everything from there on
logprobs        list        R: behaviour logprob, not shifted; 0.0 off the mask, None where the engine gave none
env_mask        list[int]   R: 1 where the token trains; TRL itself calls it the tool mask
reward          float?      the vote, for a reward function; None leaves the row out of TRL's group mean
rollout         str         its id, for a reward function and for logs
==============  ==========  ==========================================================================================

TRL computes the advantage from the rewards and has exactly one row for each prompt: a rollout that fans out to several
branches does not fit, and is refused. A row without a vote stands for a rollout that may not train (dropped, masked, not
scored): its own tokens with a mask of zeros and no reward. It changes neither TRL's group mean nor, with the loss type
``dapo`` (TRL's default, which divides by the tokens that train), the loss. TRL reads `logprobs` only with vLLM.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from rollbook.errors import UsageError
from rollbook.export.doors.parts import by_rollout, place, require_trained
from rollbook.trace.node import TokenIds
from rollbook.trace.sample import Sample

__all__ = ["columns", "record", "records", "without_vote"]

_NAMES = ("prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "rollout")


def record(samples: Sequence[Sample], *, vote: float | None = None) -> dict[str, Any]:
    """The row of one rollout. `vote`: what it enters its group with, penalties included; None: its reward. Raises
    `UsageError` where it has several samples or none, or trains nothing."""
    if len(samples) != 1:
        raise UsageError(
            f"TRL's rollout_func has one row for each prompt, and {_named(samples)} gives {len(samples)} samples: use "
            "an agent and a context policy that keep one branch, or a door that takes several (trl_async, slime, ...)"
        )
    (sample,) = samples
    require_trained(sample)
    start, reward = sample.prompt_len, sample.reward if vote is None else vote
    if reward is not None and not math.isfinite(reward):
        raise UsageError(f"{place(sample)}: its reward is {reward}; give finite numbers, or none")
    mask = sample.loss_mask[start:]
    given = np.where(mask, sample.logprobs[start:], np.float32(0))
    return {
        "prompt_ids": sample.token_ids[:start].tolist(),
        "completion_ids": sample.token_ids[start:].tolist(),
        "logprobs": [value if math.isfinite(value) else None for value in given.tolist()],
        "env_mask": mask.astype(np.int64).tolist(),
        "reward": reward,
        "rollout": sample.rollout,
    }


def without_vote(rollout: str, token_ids: TokenIds, prompt_len: int) -> dict[str, Any]:
    """The row of a rollout that may not train. `token_ids`: int32 (tokens,), of its last branch; `prompt_len`: tokens
    before the first sampled one; where nothing was sampled, the last token of the prompt stands as completion, for TRL
    takes no empty one. Raises `UsageError` where there are not two tokens."""
    if len(token_ids) < 2:
        raise UsageError(
            f"rollout {rollout!a} holds {len(token_ids)} tokens, so TRL has no row for it, and TRL takes no batch that "
            "lacks one: see how the rollout ended, and let the ending rules retry it"
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


def columns(rows: Iterable[dict[str, Any]]) -> dict[str, list[Any]]:
    """Rows as the columns that TRL takes."""
    kept = list(rows)
    return {name: [row[name] for row in kept] for name in _NAMES}


def records(samples: Iterable[Sample]) -> dict[str, list[Any]]:
    """The columns of a batch, a row for each rollout. Raises `UsageError` as `record` does."""
    return columns(record(rows) for rows in by_rollout(samples))


def _named(samples: Sequence[Sample]) -> str:
    return f"rollout {samples[0].rollout!a}" if samples else "a rollout"
