import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors import trl_async
from tests.export.doors.made import made


def test_the_fields_of_a_row() -> None:
    (two,) = made("two_turns")
    two = dataclasses.replace(two, advantage=-0.5)
    (row,) = trl_async.records([two])
    assert row["input_ids"].tolist() == two.token_ids.tolist()
    assert row["completion_mask"].tolist() == two.loss_mask.astype(int).tolist()
    assert (row["input_ids"].dtype, row["completion_mask"].dtype) == (np.int64, np.int64)
    assert row["old_log_probs"].dtype == np.float32
    assert np.array_equal(row["old_log_probs"], np.where(two.loss_mask, two.logprobs, 0))
    assert {name: row[name] for name in ("advantage", "model_version", "group_id", "metrics", "enqueued_at")} == {
        "advantage": -0.5,
        "model_version": 3,
        "group_id": 0,
        "metrics": {"reward": 0.0},
        "enqueued_at": None,
    }


def test_groups_are_numbered_in_order_of_appearance_and_the_oldest_version_counts() -> None:
    one, mixed, two = made("one_turn", "two_versions", "two_turns")
    rows = trl_async.records([one, dataclasses.replace(mixed, group="other"), two])
    assert [row["group_id"] for row in rows] == [0, 1, 0]
    assert [row["model_version"] for row in rows] == [3, 3, 3]
    assert [row["group_id"] for row in trl_async.records([one, two], group_id=7)] == [7, 7]


def test_an_unknown_version_is_given_by_the_caller_or_refused() -> None:
    (one,) = made("one_turn")
    bare = dataclasses.replace(one, min_version=None, reward=None)
    with pytest.raises(UsageError, match="told no policy version"):
        trl_async.records([bare])
    (row,) = trl_async.records([bare], version=4)
    assert (row["model_version"], row["metrics"]) == (4, {})


def test_turns_with_advantages_of_their_own_are_refused_where_they_differ() -> None:
    (two,) = made("two_turns")
    same = np.where(two.loss_mask, np.float32(0.25), np.float32(np.nan))
    assert trl_async.records([dataclasses.replace(two, advantages=same)])[0]["advantage"] == 0.25
    other = np.where(two.turn_id == 1, np.float32(0.5), same)
    with pytest.raises(UsageError, match="advantages of their own"):
        trl_async.records([dataclasses.replace(two, advantages=other)])
