"""AReaL: its check of trajectories, and its putting of them together."""

from __future__ import annotations

import pytest
import torch

from rollbook.export.doors import areal
from rollbook.trace.sample import Sample
from tests.slow.trainers.absent import stand_in
from tests.slow.trainers.toy import LINEAR, Table, made, token_logprobs

stand_in("torchdata")

from areal.infra.workflow_executor import check_trajectory_format
from areal.utils.data import concat_padded_tensors


def trajectories(samples: list[Sample]) -> list[dict[str, torch.Tensor]]:
    return [{name: torch.from_numpy(array) for name, array in each.items()} for each in areal.records(samples)]


@pytest.mark.parametrize("name", [*LINEAR, "three_branches"])
def test_areal_takes_the_trajectory(name: str) -> None:
    samples = made(name)
    (trajectory,) = trajectories(samples)
    assert check_trajectory_format(trajectory, batch_size=len(samples))


def test_versions_are_those_of_each_token_also_put_together() -> None:
    samples = made("two_versions", "one_turn")
    together = concat_padded_tensors(trajectories(samples))
    for place, sample in enumerate(samples):
        there = together["attention_mask"][place].bool()
        assert together["input_ids"][place][there].tolist() == sample.token_ids.tolist()
        assert together["versions"][place][there].tolist() == sample.policy_version.tolist()


def test_logprobs_rolled_by_one_as_its_trainer_does_are_those_of_the_next_token() -> None:
    together = concat_padded_tensors(trajectories(made(*LINEAR)))
    rolled, mask = (torch.roll(together[name], -1, dims=-1) for name in ("logprobs", "loss_mask"))
    found = token_logprobs(Table(), together["input_ids"])
    trains = mask.bool()[:, :-1]
    assert (found - rolled[:, :-1])[trains].abs().max() < 1e-5
    assert not mask[:, -1].any()
