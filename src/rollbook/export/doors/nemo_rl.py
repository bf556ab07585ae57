"""NeMo-RL: the fields of `Completion` (nemo_rl/experience/interfaces.py), one for each attempt.

`message_log` is the sequence cut into messages, each with its ids; put together they are all of it. NeMo-RL trains
every token of an assistant's message that has `generation_logprobs`, and no others, so such a message is exactly one
stretch of trained tokens, and what lies between (templates, observations, turns out of the loss) stands as messages
without logprobs. NeMo-RL computes the advantage and tells groups by the tokens of their prompt, the messages before the
first assistant's. An attempt has one message log, so one of several branches is refused (`nemo_rl_batch` takes them).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rollbook.export.doors.admission import admitted, loss_logprobs, refuse_branches, reward_of
from rollbook.export.doors.door import Row
from rollbook.trace.sample import Sample

__all__ = ["record", "records", "rows"]


def records(samples: Sequence[Sample], *, allow_unfit_logprobs: bool = False) -> list[dict[str, Any]]:
    """One `Completion` as a dictionary for each attempt; arrays become tensors in the trainer."""
    taken = admitted(samples, allow_unfit_logprobs=allow_unfit_logprobs)
    refuse_branches(
        taken,
        "NeMo-RL has one message log for each attempt, and this one has several branches; use the door nemo_rl_batch, "
        "or a context policy that keeps one",
    )
    return [record(sample) for sample in taken]


def record(sample: Sample) -> dict[str, Any]:
    """One `Completion` as a dictionary."""
    return {
        "message_log": _messages(sample),
        "env_extras": {"rollout": sample.rollout, "group": sample.group},
        "truncated": sample.truncated,
        "reward": reward_of(sample),
    }


def _messages(sample: Sample) -> list[dict[str, Any]]:
    """A message for each stretch that trains or does not; turns that follow on each other are cut apart."""
    ids, logprobs = sample.token_ids.astype(np.int64), loss_logprobs(sample)
    kinds = np.where(sample.loss_mask, sample.turn_id, -1)
    starts = [0, *(np.flatnonzero(np.diff(kinds)) + 1).tolist()]
    found: list[dict[str, Any]] = []
    for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
        message = {"role": "user", "content": "", "token_ids": ids[start:end]}
        if sample.loss_mask[start]:
            message |= {"role": "assistant", "generation_logprobs": logprobs[start:end]}
        found.append(message)
    return found


def rows(records: Sequence[Mapping[str, Any]]) -> list[Row]:
    """What NeMo-RL reads."""
    return [_row(each) for each in records]


def _row(record: Mapping[str, Any]) -> Row:
    log: list[dict[str, Any]] = record["message_log"]
    trains = [message["role"] == "assistant" and "generation_logprobs" in message for message in log]
    first = trains.index(True)
    return Row(
        token_ids=np.concatenate([message["token_ids"] for message in log]),
        trains=np.concatenate(
            [np.full(len(message["token_ids"]), each) for message, each in zip(log, trains, strict=True)]
        ),
        logprobs=np.concatenate(
            [message.get("generation_logprobs", np.zeros(len(message["token_ids"]), np.float32)) for message in log]
        ),
        reward=record["reward"],
        rollout=record["env_extras"]["rollout"],
        group=tuple(token for message in log[:first] for token in message["token_ids"].tolist()),
        truncated=record["truncated"],
    )
