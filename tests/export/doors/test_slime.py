"""The records of slime and of Miles."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import miles, slime
from tests.export.doors.made import made


def test_the_record_of_two_turns() -> None:
    one, two = made("one_turn", "two_turns")
    record = slime.records([one, two])[1]
    assert record["tokens"] == two.token_ids.tolist()
    assert record["response_length"] == 8
    assert record["loss_mask"] == [1, 1, 0, 0, 0, 1, 1, 1]
    assert record["rollout_log_probs"][2:5] == [0.0] * 3
    assert (record["group_index"], record["rollout_id"], record["index"]) == (0, 1, 1)
    assert (record["reward"], record["status"], record["weight_versions"]) == (0.0, "completed", ["3"])
    assert record["metadata"]["advantage"] == two.advantage
    assert json.loads(json.dumps(record)) == record


def test_branches_share_their_rollouts_number_and_each_has_its_own() -> None:
    records = slime.records(made("one_turn", "three_branches", "two_turns"))
    assert [record["rollout_id"] for record in records] == [0, 1, 1, 1, 2]
    assert [record["index"] for record in records] == [0, 1, 2, 3, 4]
    assert {record["group_index"] for record in records} == {0}


def test_rollouts_of_two_runs_are_two_even_under_one_name() -> None:
    (one,) = made("one_turn")
    records = slime.records([one, dataclasses.replace(one, run="another")])
    assert [(record["rollout_id"], record["group_index"]) for record in records] == [(0, 0), (1, 1)]


def test_a_cut_rollout_is_truncated() -> None:
    (cut,) = slime.records(made("cut"))
    assert (cut["status"], cut["tokens"][-4:], cut["metadata"]["ending_reason"]) == (
        "truncated",
        [25, 26, 27, 28],
        "generation_limit",
    )


def test_turns_with_advantages_of_their_own_are_refused() -> None:
    (two,) = made("two_turns")
    own = np.where(two.loss_mask, two.turn_id, np.nan).astype(np.float32)
    with pytest.raises(UsageError, match="slime takes one for a rollout"):
        slime.records([dataclasses.replace(two, advantages=own)])


def test_routed_experts_have_a_row_for_each_token_but_the_last() -> None:
    (one,) = made("one_turn")
    rows = np.arange(len(one), dtype=np.uint16)[:, None, None]
    routed = dataclasses.replace(one, routed_experts=rows, experts_known=np.ones(len(one), np.bool_))
    for door in (slime, miles):
        (record,) = door.records([routed])
        assert record["rollout_routed_experts"].dtype == np.int32
        assert record["rollout_routed_experts"].ravel().tolist() == list(range(1, len(one)))


def test_miles_has_slimes_core_and_its_own_fields() -> None:
    samples = made("three_branches")
    for ours, theirs in zip(slime.records(samples), miles.records(samples), strict=True):
        shared = ours.keys() & theirs.keys()
        assert {name: ours[name] for name in shared} == {name: theirs[name] for name in shared}
        assert theirs.keys() - ours.keys() == {
            "rollout_indexer_topk",
            "opd_reverse_kl",
            "adapter",
            "reward_spec",
            "routing_key",
        }
