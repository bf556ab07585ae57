from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from rollbook.errors import RecordError, UsageError
from rollbook.export.fields import check_sample, scalars
from rollbook.trace import Sample, samples
from tests.export.build import sound


def sample() -> Sample:
    (only,) = samples(sound())
    return only


def test_a_sample_is_fine() -> None:
    check_sample(sample())


def test_a_sample_that_trains_nothing_is_refused() -> None:
    with pytest.raises(RecordError, match="trains no token"):
        check_sample(replace(sample(), loss_mask=np.zeros(6, np.bool_)))


@pytest.mark.parametrize("name", ["sampled", "logprobs", "policy_version", "turn_id", "loss_mask"])
def test_arrays_of_another_length_are_refused(name: str) -> None:
    found = sample()
    arrays = {
        "sampled": found.sampled,
        "logprobs": found.logprobs,
        "policy_version": found.policy_version,
        "turn_id": found.turn_id,
        "loss_mask": found.loss_mask,
    }
    with pytest.raises(RecordError, match="differ in length"):
        check_sample(replace(found, **{name: arrays[name][1:]}))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_are_none_are_refused(value: float) -> None:
    with pytest.raises(RecordError, match="a reward is not finite"):
        check_sample(replace(sample(), reward=value))
    with pytest.raises(RecordError, match="a reward is not finite"):
        check_sample(replace(sample(), reward_parts={"x": value}))
    with pytest.raises(RecordError, match="a reward is not finite"):
        check_sample(replace(sample(), turn_rewards=((0, value),)))
    with pytest.raises(UsageError, match="the advantage is"):
        check_sample(replace(sample(), advantage=value))
    with pytest.raises(UsageError, match="the advantage of a turn"):
        check_sample(replace(sample(), advantages=np.full(6, value, np.float32)))


def test_the_documentation_names_every_field() -> None:
    text = (Path(__file__).parents[2] / "docs" / "export.md").read_text()
    cells = [line.split("|")[1] for line in text.splitlines() if line.startswith("| `")]
    stated = {name.strip(" `") for cell in cells for name in cell.split(",")}
    arrays = {"token_ids", "sampled", "loss_mask", "logprobs", "policy_version", "turn_id", "advantages"}
    assert stated == arrays | scalars(sample()).keys()
