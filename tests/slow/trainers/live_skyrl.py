"""SkyRL: its check of a generator's output, step-wise, its tensors, and its policy loss."""

from __future__ import annotations

import sys
import typing
from typing import Any

import numpy as np
import pytest
import torch
import typing_extensions

from rollbook.export.doors import skyrl
from rollbook.trace.sample import Sample
from tests.slow.trainers.toy import LINEAR, Table, made, token_logprobs

if sys.version_info < (3, 12):
    # SkyRL asks for Python 3.12, for a TypedDict that pydantic reads; its module has no other need of it
    vars(typing)["TypedDict"] = typing_extensions.TypedDict

from skyrl.backends.skyrl_train.utils.ppo_utils import (
    apply_loss_reduction_to_advantages_minibatch,
    compute_grpo_outcome_advantage,
    ppo_policy_loss,
)
from skyrl.train.config import AlgorithmConfig
from skyrl.train.dataset.preprocess import convert_prompts_responses_to_batch_tensors
from skyrl.train.generators.base import GeneratorOutput, TrajectoryID
from skyrl.train.utils.trainer_utils import validate_generator_output


def output(samples: list[Sample]) -> Any:
    lists = skyrl.records(samples)
    assert set(lists) == set(GeneratorOutput.__annotations__)
    return GeneratorOutput(**lists | {"trajectory_ids": [TrajectoryID(**each) for each in lists["trajectory_ids"]]})


def tensors(samples: list[Sample]) -> tuple[torch.Tensor, ...]:
    """SkyRL's own sequences, rewards, loss masks and logprobs, the last three about the response, right-aligned."""
    lists = skyrl.records(samples)
    rewards = [
        [*[0.0] * (len(ids) - 1), each] for ids, each in zip(lists["response_ids"], lists["rewards"], strict=True)
    ]
    made = convert_prompts_responses_to_batch_tensors(
        0, lists["prompt_token_ids"], lists["response_ids"], rewards, lists["loss_masks"], lists["rollout_logprobs"]
    )
    return made[0], made[3], made[4], made[5]


def test_rollouts_of_one_branch_are_taken() -> None:
    samples = made(*LINEAR)
    validate_generator_output(len(samples), output(samples))


def test_rollouts_of_several_branches_are_taken_step_wise() -> None:
    samples = made("one_turn", "three_branches", "lost_end", "two_turns")
    validate_generator_output(4, output(samples[::2] + samples[1::2]), step_wise=True)


def test_rows_that_stand_apart_would_be_found_out() -> None:
    lists = output(made("three_branches", "one_turn"))
    names = lists["trajectory_ids"]
    lists["trajectory_ids"] = [names[0], names[3], names[1], names[2]]
    with pytest.raises(AssertionError):
        validate_generator_output(2, lists, step_wise=True)


def test_a_reward_on_a_masked_end_is_seen() -> None:
    samples = made("masked_end", "one_turn", "three_branches")
    _, rewards, _, _ = tensors(samples)
    assert rewards.sum(dim=-1).tolist() == [sample.reward for sample in samples]


def test_its_group_norm_without_the_deviation_is_our_advantage() -> None:
    samples = made(*LINEAR)
    _, rewards, masks, _ = tensors(samples)
    groups = np.array([each["instance_id"] for each in skyrl.records(samples)["trajectory_ids"]])
    found, _ = compute_grpo_outcome_advantage(rewards, masks, groups, grpo_norm_by_std=False)
    mean = sum(sample.reward or 0.0 for sample in samples) / len(samples)
    for row, mask, sample in zip(found, masks, samples, strict=True):
        assert row[mask.bool()].tolist() == pytest.approx([(sample.reward or 0.0) - mean] * int(mask.sum()))


@pytest.mark.parametrize("names", [LINEAR, ("one_turn", "three_branches")])
def test_masked_tokens_have_exactly_no_gradient_and_logprobs_fit_after_its_own_shift(names: tuple[str, ...]) -> None:
    samples = made(*names)
    sequences, _, masks, logprobs = tensors(samples)
    width = masks.shape[1]
    # as its model's forward pass takes them: log_probs[:, -num_actions - 1 : -1]
    found = token_logprobs(Table(), sequences)[:, -width:].detach().requires_grad_()
    there = masks.bool()
    assert (found - logprobs)[there].abs().max() < 1e-5
    advantages = torch.tensor([[each.advantage or 0.0] for each in samples]) * masks
    scaled = apply_loss_reduction_to_advantages_minibatch(advantages, masks, "token_mean", len(samples), 64)
    loss, _ = ppo_policy_loss(found, logprobs, scaled, AlgorithmConfig(policy_loss_type="regular"), masks)
    loss.backward()
    assert found.grad is not None
    assert not found.grad[~there].any()
    assert torch.allclose(found.grad[there], (-advantages / masks.sum())[there], atol=1e-5)
