"""The columns of a row, the same in all our own forms.

A row is one sample. Arrays have full length, entry t is about token t:

=================  =======  ==========================================================================================
token_ids          int32    the sequence
sampled            0/1      the engine returned this token
loss_mask          0/1      this token trains in this row
logprobs           float32  behaviour logprob; absent where not sampled or not given
policy_version     int32    -1 where not sampled or not known
turn_id            int32    number of the turn within the rollout; -1 where not sampled
prompt_len         int      index of the first sampled token
reward             float?   of the whole rollout; absent is not zero
reward_parts       map      part -> reward
turn_rewards       list     (turn, reward) of the turns that this row trains
advantage          float?   of the whole rollout
advantages         float32? where turns have advantages of their own: by token, absent off the loss mask
rollout_trained    int      trained tokens of all rows of this rollout
weight             float    the row's part of its rollout, by trained tokens: those of one rollout add up to 1
ending_kind        text?    see `rollbook.trace.EndingKind`
ending_reason      text?    see `rollbook.trace.Reason`
truncated          bool     a budget or a limit cut the rollout short
min_version        int?     over the trained tokens
max_version        int?     likewise
logprob_kinds      texts    the kinds that occur
logprobs_fit       bool     every logprob is of the distribution that was sampled
samplings          JSON     each different sampling transform, whole
run, group, episode, rollout  text  ids; rows of one rollout share them
branch             int      the branch within the rollout
is_last_branch     bool     the branch that the rollout ended on
=================  =======  ==========================================================================================

The text of endings is left out: it is for people.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from rollbook.errors import RecordError, UsageError
from rollbook.trace.call import SamplingFields
from rollbook.trace.sample import Sample
from rollbook.trace.sample_block import SampleBlock

__all__ = ["arrays", "block_scalars", "check_numbers", "check_sample", "plain_samplings", "scalars"]


def arrays(sample: Sample) -> dict[str, npt.NDArray[Any]]:
    """All arrays by name, each of shape (tokens,); ``advantages`` only where there are some."""
    found: dict[str, npt.NDArray[Any]] = {
        "token_ids": sample.token_ids,
        "sampled": sample.sampled,
        "loss_mask": sample.loss_mask,
        "logprobs": sample.logprobs,
        "policy_version": sample.policy_version,
        "turn_id": sample.turn_id,
    }
    return found if sample.advantages is None else found | {"advantages": sample.advantages}


def plain_samplings(samplings: Sequence[SamplingFields]) -> Any:
    """Samplings as plain data."""
    return [msgspec.to_builtins(sampling) for sampling in samplings]


def scalars(
    sample: Sample, *, samplings: Callable[[Sequence[SamplingFields]], Any] = plain_samplings
) -> dict[str, Any]:
    """All fields but the arrays, as plain data; `samplings` puts the samplings into a form's own."""
    ending = sample.ending
    return {
        "run": sample.run,
        "group": sample.group,
        "episode": sample.episode,
        "rollout": sample.rollout,
        "branch": sample.branch,
        "is_last_branch": sample.is_last_branch,
        "prompt_len": sample.prompt_len,
        "reward": sample.reward,
        "reward_parts": dict(sample.reward_parts),
        "turn_rewards": [[turn, value] for turn, value in sample.turn_rewards],
        "advantage": sample.advantage,
        "rollout_trained": sample.rollout_trained,
        "weight": sample.weight,
        "ending_kind": str(ending.kind) if ending else None,
        "ending_reason": str(ending.reason) if ending else None,
        "truncated": sample.truncated,
        "min_version": sample.min_version,
        "max_version": sample.max_version,
        "logprob_kinds": sorted(str(kind) for kind in sample.logprob_kinds),
        "logprobs_fit": sample.logprobs_fit,
        "samplings": samplings(sample.samplings),
    }


def block_scalars(
    block: SampleBlock, *, samplings: Callable[[Sequence[SamplingFields]], Any] = plain_samplings
) -> dict[str, Sequence[Any] | npt.NDArray[Any]]:
    """By field what `scalars` gives for each sample of a block; numbers as arrays."""
    count = len(block)
    heads, tails = [trace.head for trace in block.traces], [trace.tail for trace in block.traces]
    endings = [trace.ending for trace in block.traces]
    reasons = [ending.reason for ending in endings]
    spelled = {each: sorted(map(str, each)) for each in {by.logprob_kinds for by in block.sampled_by}}
    kinds = {reason: (reason.kind.value, reason.value) for reason in set(reasons)}
    return {
        "run": [head.run for head in heads],
        "group": [head.group for head in heads],
        "episode": [head.episode for head in heads],
        "rollout": [head.rollout for head in heads],
        "branch": np.zeros(count, np.int32),
        "is_last_branch": np.ones(count, np.bool_),
        "prompt_len": block.prompt_len,
        "reward": [tail.reward for tail in tails],
        "reward_parts": [tail.reward_parts for tail in tails],
        "turn_rewards": [[]] * count,
        "advantage": block.advantages,
        "rollout_trained": block.trained,
        "weight": np.ones(count),
        "ending_kind": [kinds[reason][0] for reason in reasons],
        "ending_reason": [kinds[reason][1] for reason in reasons],
        "truncated": [ending.truncated for ending in endings],
        "min_version": block.min_version,
        "max_version": block.max_version,
        "logprob_kinds": [spelled[by.logprob_kinds] for by in block.sampled_by],
        "logprobs_fit": [by.logprobs_fit for by in block.sampled_by],
        "samplings": [samplings(by.samplings) for by in block.sampled_by],
    }


def check_sample(sample: Sample) -> None:
    """Refuse what no trainer can use: a row without a trained token, arrays of unequal length, a number that is
    not finite."""
    where = f"rollout {sample.rollout!a}, branch {sample.branch}"
    if not sample.loss_mask.any():
        raise RecordError(f"{where}: the sample trains no token; there are no placeholder rows")
    if any(len(array) != len(sample) for array in arrays(sample).values()):
        raise RecordError(f"{where}: the arrays of the sample differ in length")
    check_numbers(sample)


def check_numbers(sample: Sample) -> None:
    """The part of `check_sample` that is about rewards and advantages."""
    where = f"rollout {sample.rollout!a}, branch {sample.branch}"
    numbers = (sample.reward, *sample.reward_parts.values(), *(value for _, value in sample.turn_rewards))
    if not all(number is None or math.isfinite(number) for number in numbers):
        raise RecordError(f"{where}: a reward is not finite")
    if sample.advantage is not None and not math.isfinite(sample.advantage):
        raise UsageError(f"{where}: the advantage is {sample.advantage}; give finite numbers, or none")
    if sample.advantages is not None and not np.isfinite(sample.advantages[sample.loss_mask]).all():
        raise UsageError(f"{where}: the advantage of a turn is not finite; give finite numbers, or none")
