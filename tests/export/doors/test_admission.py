"""What every door refuses, and what it cuts a sample into."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.errors import RecordError, UsageError
from rollbook.export.doors.admission import admitted, loss_logprobs, reward_of, token_advantages
from rollbook.export.doors.response import response, version_runs
from rollbook.trace.sample import Sample
from tests.export.doors.made import made


def taken(*samples: Sample, allowed: bool = False) -> list[Sample]:
    return admitted(samples, allow_unfit_logprobs=allowed)


def test_samples_of_one_rollout_stand_together_by_branch() -> None:
    one, first, second, third, two = made("one_turn", "three_branches", "two_turns")
    assert taken(third, one, first, two, second) == [first, second, third, one, two]


def test_nothing_is_no_batch() -> None:
    with pytest.raises(UsageError, match="there are no samples"):
        taken()


def test_a_row_that_trains_nothing_is_refused() -> None:
    (one,) = made("one_turn")
    with pytest.raises(RecordError, match="trains no token"):
        taken(dataclasses.replace(one, loss_mask=np.zeros(len(one), np.bool_)))


def test_a_first_token_that_trains_is_refused() -> None:
    (one,) = made("one_turn")
    every = np.ones(len(one), np.bool_)
    with pytest.raises(UsageError, match="no model predicts a first token"):
        taken(dataclasses.replace(one, loss_mask=every, sampled=every))


def test_a_token_that_was_not_sampled_does_not_train() -> None:
    (one,) = made("one_turn")
    with pytest.raises(UsageError, match="trains that was not sampled"):
        taken(dataclasses.replace(one, sampled=np.zeros(len(one), np.bool_)))


def test_unfit_logprobs_are_refused_unless_allowed() -> None:
    (one,) = made("one_turn")
    unfit = dataclasses.replace(one, logprobs_fit=False)
    with pytest.raises(UsageError, match="not of the distribution that was sampled"):
        taken(unfit)
    assert taken(unfit, allowed=True) == [unfit]


def test_the_same_branch_twice_is_refused() -> None:
    (one,) = made("one_turn")
    for again in (one, dataclasses.replace(one)):
        with pytest.raises(UsageError, match="would train twice"):
            taken(one, again)


def test_absent_is_not_zero() -> None:
    (one,) = made("one_turn")
    gone = one.logprobs.copy()
    gone[-1] = np.nan
    with pytest.raises(UsageError, match="has no logprob"):
        loss_logprobs(dataclasses.replace(one, logprobs=gone))
    with pytest.raises(UsageError, match="has no advantage"):
        token_advantages(dataclasses.replace(one, advantage=None))
    with pytest.raises(UsageError, match="has no reward"):
        reward_of(dataclasses.replace(one, reward=None))


def test_turns_may_have_advantages_of_their_own() -> None:
    (two,) = made("two_turns")
    own = np.where(two.loss_mask, two.turn_id + 1, np.nan).astype(np.float32)
    found = token_advantages(dataclasses.replace(two, advantages=own, advantage=None))
    assert found.tolist() == [0, 0, 0, 0, 0, 1, 1, 0, 0, 0, 2, 2, 2]


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_a_response_is_the_sample_from_its_first_sampled_token(data: st.DataObject) -> None:
    size = data.draw(st.integers(2, 12))
    sampled = np.array([False, *data.draw(st.lists(st.booleans(), min_size=size - 1, max_size=size - 1))])
    sampled[-1] |= not sampled.any()
    loss = sampled & np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)))
    (base,) = made("one_turn")
    start = int(sampled.argmax())
    ids = np.arange(size, dtype=np.int32)
    logprobs = np.where(sampled, -ids / 8, np.nan).astype(np.float32)
    cut = response(
        dataclasses.replace(base, token_ids=ids, sampled=sampled, loss_mask=loss, logprobs=logprobs, prompt_len=start)
    )
    assert cut.prompt_ids + cut.response_ids == ids.tolist()
    assert [0] * start + cut.mask == loss.astype(int).tolist()
    assert cut.logprobs == [-index / 8 if loss[index] else 0.0 for index in range(start, size)]


@pytest.mark.parametrize(
    ("versions", "runs"), [([3, 3, 4], ["3", "4"]), ([-1, -1, -1], []), ([0, 1, 0], ["0", "1", "0"])]
)
def test_each_run_of_equal_versions_stands_once(versions: list[int], runs: list[str]) -> None:
    (one,) = made("one_turn")
    given_versions = np.array([-1] * 5 + versions, np.int32)
    assert version_runs(dataclasses.replace(one, policy_version=given_versions)) == runs
