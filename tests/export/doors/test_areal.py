import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import areal
from tests.export.doors.made import made


def test_the_arrays_of_an_attempt_with_branches_are_padded_on_the_right() -> None:
    samples = made("three_branches")
    (attempt,) = areal.records(samples, pad_id=63)
    longest = max(map(len, samples))
    assert {name: (array.dtype, array.shape) for name, array in attempt.items()} == {
        "input_ids": (np.int64, (3, longest)),
        "attention_mask": (np.bool_, (3, longest)),
        "loss_mask": (np.int64, (3, longest)),
        "logprobs": (np.float32, (3, longest)),
        "versions": (np.int64, (3, longest)),
        "turn_ids": (np.int64, (3, longest)),
        "rewards": (np.float32, (3,)),
    }
    assert attempt["rewards"].tolist() == [1.0] * 3
    for place, sample in enumerate(samples):
        assert attempt["attention_mask"][place].tolist() == [True] * len(sample) + [False] * (longest - len(sample))
        behind = slice(len(sample), None)
        assert attempt["input_ids"][place, : len(sample)].tolist() == sample.token_ids.tolist()
        assert set(attempt["input_ids"][place, behind].tolist()) <= {63}
        assert not attempt["loss_mask"][place, behind].any()
        assert set(attempt["versions"][place, behind].tolist()) <= {-1}
        assert attempt["turn_ids"][place, : len(sample)].tolist() == sample.turn_id.tolist()


def test_versions_are_those_of_each_token() -> None:
    (attempt,) = areal.records(made("two_versions"))
    assert attempt["versions"].tolist() == [[-1, -1, -1, -1, -1, 3, 3, -1, 4, 4]]


def test_each_attempt_has_its_own_arrays() -> None:
    attempts = areal.records(made("one_turn", "three_branches", "two_turns"))
    assert [len(each["input_ids"]) for each in attempts] == [1, 3, 1]


def test_an_absent_reward_is_refused() -> None:
    (one,) = made("one_turn")
    with pytest.raises(UsageError, match="no reward"):
        areal.records([dataclasses.replace(one, reward=None)])
