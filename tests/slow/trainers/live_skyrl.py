"""SkyRL: its check of a generator's output, step-wise, with its own trajectory ids."""

from __future__ import annotations

from typing import Any

import pytest
from skyrl.train.generators.base import GeneratorOutput, TrajectoryID
from skyrl.train.utils.trainer_utils import validate_generator_output

from rollbook.export.doors import skyrl
from rollbook.trace.sample import Sample
from tests.slow.trainers.toy import LINEAR, made


def output(samples: list[Sample]) -> Any:
    lists = skyrl.records(samples)
    assert set(lists) == set(GeneratorOutput.__annotations__)
    return GeneratorOutput(**lists | {"trajectory_ids": [TrajectoryID(**each) for each in lists["trajectory_ids"]]})


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
