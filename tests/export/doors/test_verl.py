"""verl's records: the arguments of its `AgentLoopOutput`."""

from __future__ import annotations

import dataclasses

import numpy as np

from rollbook.export.doors import verl
from tests.export.doors.made import made


def test_the_record_of_two_turns() -> None:
    (two,) = made("two_turns")
    record = verl.record(two)
    assert record["prompt_ids"] == [1, 2, 3, 4, 5]
    assert record["response_ids"] == [13, 14, 50, 51, 5, 15, 16, 17]
    assert record["response_mask"] == [1, 1, 0, 0, 0, 1, 1, 1]
    assert record["response_logprobs"][2:5] == [0.0] * 3
    assert record["response_logprobs"][5:] == two.logprobs[10:].tolist()
    assert (record["reward_score"], record["num_turns"], record["routed_experts"]) == (0.0, 2, None)
    assert record["extra_fields"] == {
        "rollout_id": "two_turns",
        "group_id": "made-up",
        "branch": 0,
        "is_last_branch": True,
        "truncated": False,
        "ending_reason": "final_answer",
        "reward_extra_info": {},
        "min_global_steps": 3,
        "max_global_steps": 3,
    }


def test_versions_that_nobody_told_are_absent() -> None:
    (two,) = made("two_turns")
    fields = verl.extra_fields(dataclasses.replace(two, min_version=None, max_version=None, ending=None))
    assert "min_global_steps" not in fields
    assert fields["ending_reason"] is None


def test_each_branch_has_the_reward_and_the_id_of_its_rollout() -> None:
    records = verl.records(made("three_branches"))
    assert [record["reward_score"] for record in records] == [1.0] * 3
    assert {record["extra_fields"]["rollout_id"] for record in records} == {"three_branches"}
    assert [record["extra_fields"]["branch"] for record in records] == [0, 1, 2]


def test_routed_experts_begin_with_the_pass_over_the_first_token() -> None:
    (one,) = made("one_turn")
    rows = np.arange(len(one), dtype=np.uint16)[:, None, None]
    record = verl.record(dataclasses.replace(one, routed_experts=rows, experts_known=np.ones(len(one), np.bool_)))
    assert record["routed_experts"].dtype == np.int16
    assert record["routed_experts"].ravel().tolist() == list(range(1, len(one)))
