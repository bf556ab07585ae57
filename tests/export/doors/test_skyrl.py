import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import skyrl
from rollbook.trace.sample import Sample
from tests.export.doors.made import made


def routed(sample: Sample) -> Sample:
    experts = np.arange(len(sample) * 4, dtype=np.uint16).reshape(-1, 2, 2)
    return dataclasses.replace(sample, routed_experts=experts, experts_known=np.arange(len(sample)) > 0)


def test_the_lists() -> None:
    two, cut = made("two_turns", "cut")
    lists = skyrl.records([two, cut])
    assert lists["prompt_token_ids"] == [[1, 2, 3, 4, 5]] * 2
    assert lists["response_ids"] == [[13, 14, 50, 51, 5, 15, 16, 17], [25, 26, 27, 28]]
    assert lists["loss_masks"] == [[1, 1, 0, 0, 0, 1, 1, 1], [1] * 4]
    assert lists["rollout_logprobs"][1] == cut.logprobs[5:].tolist()
    assert lists["stop_reasons"] == ["stop", "length"]
    assert lists["rewards"] == [0.0, 0.0]
    assert lists["rollout_expert_indices"] is None


def test_rows_of_a_trajectory_stand_together_and_the_last_is_marked() -> None:
    one, *rest = made("one_turn", "three_branches", "two_turns")
    mixed = [rest[0], one, rest[3], rest[1], rest[2]]
    lists = skyrl.records(mixed)
    assert [each["repetition_id"] for each in lists["trajectory_ids"]] == [0, 0, 0, 1, 2]
    assert {each["instance_id"] for each in lists["trajectory_ids"]} == {"made-up/made-up"}
    assert lists["is_last_step"] == [False, False, True, True, True]
    assert lists["rewards"] == [1.0, 1.0, 1.0, 1.0, 0.0]


def test_groups_are_told_apart() -> None:
    one, two = made("one_turn", "two_turns")
    ids = skyrl.records([one, dataclasses.replace(two, group="other")])["trajectory_ids"]
    assert [each["repetition_id"] for each in ids] == [0, 0]
    assert len({each["instance_id"] for each in ids}) == 2


def test_experts_are_handed_on_for_all_or_none() -> None:
    one, two = made("one_turn", "two_turns")
    given = skyrl.records([routed(one), routed(two)])["rollout_expert_indices"]
    assert [len(each) for each in given] == [len(one) - 1, len(two) - 1]
    assert np.array_equal(given[0], routed(one).routed_experts[1:])
    with pytest.raises(UsageError, match="has no routed experts"):
        skyrl.records([routed(one), two])
