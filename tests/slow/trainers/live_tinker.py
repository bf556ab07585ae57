"""Tinker: `Datum`, and the cookbook's own `trajectory_to_data` over the same rollouts."""

from __future__ import annotations

import numpy as np
import pytest
import tinker
import torch
from tinker_cookbook.completers import TokensWithLogprobs
from tinker_cookbook.rl.data_processing import trajectory_to_data
from tinker_cookbook.rl.types import Trajectory, Transition

from rollbook.export.doors import tinker as door
from rollbook.trace.sample import Sample
from tests.slow.trainers.toy import LINEAR, Table, made


def data(samples: list[Sample], **options: bool) -> list[tinker.Datum]:
    return [
        tinker.Datum(
            model_input=tinker.ModelInput.from_ints(record["model_input"]),
            loss_fn_inputs={
                name: tinker.TensorData.from_numpy(array) for name, array in record["loss_fn_inputs"].items()
            },
        )
        for record in door.records(samples, **options)
    ]


def array(datum: tinker.Datum, name: str) -> np.ndarray:
    return datum.loss_fn_inputs[name].to_numpy()


@pytest.mark.parametrize("name", [*LINEAR, "three_branches", "lost_end"])
def test_a_datum_is_the_sample_shifted_by_one(name: str) -> None:
    samples = made(name)
    for sample, datum in zip(samples, data(samples), strict=True):
        assert datum.model_input.to_ints() == sample.token_ids[:-1].tolist()
        assert array(datum, "target_tokens").tolist() == sample.token_ids[1:].tolist()
        mask = array(datum, "mask").astype(bool)
        assert mask.tolist() == sample.loss_mask[1:].tolist()
        assert np.array_equal(array(datum, "logprobs")[mask], sample.logprobs[1:][mask])


@pytest.mark.parametrize("name", ["one_turn", "two_turns", "cut", "two_versions"])
def test_the_cookbook_makes_the_same_datum_of_the_same_rollout(name: str) -> None:
    (sample,) = made(name)
    (ours,) = data([sample])
    (theirs,) = trajectory_to_data(trajectory(sample), float(sample.advantage or 0.0))
    assert theirs.model_input.to_ints() == ours.model_input.to_ints()
    assert set(theirs.loss_fn_inputs) == set(ours.loss_fn_inputs)
    for key in theirs.loss_fn_inputs:
        assert np.array_equal(array(theirs, key), array(ours, key)), key
        assert array(theirs, key).dtype == array(ours, key).dtype


def trajectory(sample: Sample) -> Trajectory:
    """The sample as transitions of the cookbook."""
    transitions: list[Transition] = []
    for turn in np.unique(sample.turn_id[sample.sampled]).tolist():
        (at,) = np.nonzero(sample.turn_id == turn)
        action = TokensWithLogprobs(
            tokens=sample.token_ids[at].tolist(), maybe_logprobs=sample.logprobs[at].tolist(), stop_reason="stop"
        )
        seen = tinker.ModelInput.from_ints(sample.token_ids[: at[0]].tolist())
        transitions.append(Transition(ob=seen, ac=action, reward=0.0, episode_done=False, metrics={}, logs={}))
    return Trajectory(transitions=transitions, final_ob=tinker.ModelInput.from_ints([0]))


def test_recomputed_logprobs_are_the_behaviours_and_masked_tokens_have_exactly_no_gradient() -> None:
    """Tinker's importance-sampling loss, as its documentation writes it: the sum of ratio times advantage."""
    for datum in data(made(*LINEAR, "three_branches"), with_mask=False):
        ids = torch.tensor(datum.model_input.to_ints())
        targets = torch.from_numpy(array(datum, "target_tokens").copy())
        logits = Table()(ids)
        logits.retain_grad()
        found = torch.log_softmax(logits, -1).gather(-1, targets[:, None])[:, 0]
        old = torch.from_numpy(array(datum, "logprobs").copy())
        advantages = torch.from_numpy(array(datum, "advantages").copy())
        trains = advantages != 0
        if trains.any():
            assert (found - old)[trains].abs().max() < 1e-5
        (-((found - old).exp() * advantages).sum()).backward()
        assert ((logits.grad.abs().sum(-1) != 0) == trains).all()
