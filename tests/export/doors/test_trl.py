import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import trl
from tests.export.doors.made import made


def test_the_columns_of_two_rollouts() -> None:
    one, two = made("one_turn", "two_turns")
    columns = trl.records([one, two])
    assert list(columns) == ["prompt_ids", "completion_ids", "logprobs", "env_mask", "reward", "rollout"]
    assert columns["prompt_ids"] == [[1, 2, 3, 4, 5]] * 2
    assert columns["completion_ids"] == [[10, 11, 12], [13, 14, 50, 51, 5, 15, 16, 17]]
    assert columns["env_mask"] == [[1, 1, 1], [1, 1, 0, 0, 0, 1, 1, 1]]
    assert columns["logprobs"][1][2:5] == [0.0] * 3
    assert columns["logprobs"][0] == one.logprobs[5:].tolist()
    assert (columns["reward"], columns["rollout"]) == ([1.0, 0.0], ["one_turn", "two_turns"])


def test_a_reward_that_is_absent_stays_absent() -> None:
    (one,) = made("one_turn")
    assert trl.records([dataclasses.replace(one, reward=None)])["reward"] == [None]


def test_several_branches_of_one_rollout_are_refused() -> None:
    with pytest.raises(UsageError, match="rollout 'three_branches', branch 1: TRL's rollout_func has one row"):
        trl.records(made("one_turn", "three_branches"))


@pytest.mark.parametrize(("prompt_len", "cut"), [(2, 2), (0, 1), (4, 3), (9, 3)])
def test_a_row_without_a_vote_holds_its_own_tokens_and_trains_none(prompt_len: int, cut: int) -> None:
    row = trl.without_vote("lost", np.array([7, 8, 9, 10], np.int32), prompt_len)
    behind = 4 - cut
    assert row == {
        "prompt_ids": [7, 8, 9, 10][:cut],
        "completion_ids": [7, 8, 9, 10][cut:],
        "logprobs": [0.0] * behind,
        "env_mask": [0] * behind,
        "reward": None,
        "rollout": "lost",
    }


@pytest.mark.parametrize("tokens", [0, 1])
def test_a_rollout_without_tokens_has_no_row(tokens: int) -> None:
    with pytest.raises(UsageError, match=f"holds {tokens} tokens"):
        trl.without_vote("lost", np.arange(tokens, dtype=np.int32), tokens)
