"""verl's batch: padded left and right, with our advantages."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import verl_batch
from tests.export.doors.made import made


def test_prompts_are_padded_left_and_responses_right() -> None:
    one, two = made("one_turn", "two_turns")
    short = dataclasses.replace(two, token_ids=two.token_ids[1:], prompt_len=4, **{
        name: getattr(two, name)[1:] for name in ("sampled", "loss_mask", "logprobs", "policy_version", "turn_id")
    })  # fmt: skip
    tensors = verl_batch.records([one, short], pad_id=63)["tensors"]
    assert tensors["input_ids"].tolist() == [
        [1, 2, 3, 4, 5, 10, 11, 12, 63, 63, 63, 63, 63],
        [63, 2, 3, 4, 5, 13, 14, 50, 51, 5, 15, 16, 17],
    ]
    assert tensors["attention_mask"].tolist() == [[1] * 8 + [0] * 5, [0] + [1] * 12]
    assert tensors["position_ids"][1].tolist() == [0, *range(12)]
    assert tensors["response_mask"].tolist() == [[1, 1, 1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1, 1, 1]]
    assert tensors["rm_scores"].tolist() == [[0, 0, 1.0, 0, 0, 0, 0, 0], [0.0] * 8]
    assert tensors["advantages"][0].tolist() == [0.5] * 3 + [0.0] * 5
    assert tensors["advantages"][1].tolist() == [-0.5, -0.5, 0, 0, 0, -0.5, -0.5, -0.5]


def test_a_row_that_does_not_fit_is_refused_and_nothing_is_cut() -> None:
    samples = made("one_turn", "two_turns")
    with pytest.raises(UsageError, match="rollout 'two_turns', branch 0: a response of 8 tokens, and the batch has 7"):
        verl_batch.records(samples, response_length=7)
    with pytest.raises(UsageError, match="a prompt of 5 tokens, and the batch has 4"):
        verl_batch.records(samples, prompt_length=4)
    assert verl_batch.records(samples, prompt_length=6, response_length=9)["tensors"]["input_ids"].shape == (2, 15)


def test_the_weights_of_one_rollout_sum_to_one() -> None:
    batch = verl_batch.records(made("one_turn", "three_branches"))
    weights = batch["tensors"]["rollout_weight"].tolist()
    assert weights[0] == 1.0
    assert sum(weights[1:]) == pytest.approx(1.0)
    assert batch["non_tensors"]["uid"].tolist() == ["made-up"] * 4


def test_routed_experts_are_there_for_all_rows_or_for_none() -> None:
    one, two = made("one_turn", "two_turns")
    rows = np.ones((len(one), 1, 1), np.uint16)
    routed = dataclasses.replace(one, routed_experts=rows, experts_known=np.ones(len(one), np.bool_))
    assert "routed_experts" not in verl_batch.records([one, two])["tensors"]
    for mixed in ([routed, two], [two, routed]):
        with pytest.raises(UsageError, match="has no routed experts, and others"):
            verl_batch.records(mixed)
