import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.policy.align import align, checked_logprobs
from rollbook.trace.ending import Reason, RolloutFailure


@st.composite
def replies(draw):
    """Sampled ids from a small alphabet (so that ids repeat), and which of their entries are kept."""
    tokens = draw(st.lists(st.integers(0, 3), max_size=24))
    kept = draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    return tokens, kept


def entries_of(tokens, kept):
    return [(token, -float(at) - 1) for at, (token, keep) in enumerate(zip(tokens, kept, strict=True)) if keep]


@settings(max_examples=500)
@given(replies())
def test_no_position_ever_gets_anothers_logprob(reply):
    tokens, kept = reply
    found = align(tokens, entries_of(tokens, kept))
    for at, value in enumerate(found.logprobs):
        assert math.isnan(value) or (kept[at] and value == -float(at) - 1)
    assert found.missing.tolist() == np.flatnonzero(np.isnan(found.logprobs)).tolist()


@given(replies())
def test_what_is_left_out_is_always_missing(reply):
    tokens, kept = reply
    missing = set(align(tokens, entries_of(tokens, kept)).missing.tolist())
    assert {at for at, keep in enumerate(kept) if not keep} <= missing


@given(st.lists(st.integers(0, 3), max_size=24))
def test_nothing_is_missing_where_nothing_was_left_out(tokens):
    assert not len(align(tokens, entries_of(tokens, [True] * len(tokens))).missing)


@given(st.sets(st.integers(0, 50)), st.data())
def test_distinct_ids_lose_only_what_was_left_out(ids, data):
    tokens = list(ids)
    kept = data.draw(st.lists(st.booleans(), min_size=len(tokens), max_size=len(tokens)))
    found = align(tokens, entries_of(tokens, kept))
    assert found.missing.tolist() == [at for at, keep in enumerate(kept) if not keep]


def test_two_equal_neighbours_are_both_missing_when_one_lost_its_entry():
    found = align([7, 5, 5, 8], [(7, -1.0), (5, -2.0), (8, -3.0)])
    assert found.missing.tolist() == [1, 2]
    assert (found.logprobs[0], found.logprobs[3]) == (-1.0, -3.0)


@pytest.mark.parametrize("entries", [[(9, -1.0)], [(8, -1.0), (7, -1.0)], [(7, -1.0), (7, -1.0), (8, -1.0)]])
def test_entries_that_do_not_fit_break_the_contract(entries):
    with pytest.raises(RolloutFailure) as caught:
        align([7, 8], entries)
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@pytest.mark.parametrize("value", [math.nan, -math.inf, math.inf, 0.5, -3.4028234663852886e38])
def test_sentinels_are_no_logprobs(value):
    with pytest.raises(RolloutFailure, match="as a logprob"):
        align([7], [(7, value)])


def test_many_logprobs_at_once() -> None:
    found = checked_logprobs([-0.1, 0.0, 1e-4, -50.0])
    assert found.dtype == np.float32
    assert found.tolist() == np.array([-0.1, 0.0, 1e-4, -50.0], np.float32).tolist()
    assert checked_logprobs([]).shape == (0,)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 0.1, -9999.0, -1e31])
def test_one_that_is_none_among_many(value: float) -> None:
    with pytest.raises(RolloutFailure, match="as a logprob") as caught:
        checked_logprobs([-0.1, value], floor=-9999.0)
    assert caught.value.reason is Reason.ENGINE_CONTRACT
