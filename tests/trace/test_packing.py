"""Packing: nothing is lost, split or guessed from ids, and shared prefixes are those of a trie."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.trace.packing import PrefixReport, attention_mask, pack, position_ids, prefix_report, segment_starts

LENGTHS = st.lists(st.integers(1, 50), max_size=40)


@given(LENGTHS, st.integers(50, 120))
def test_each_sequence_is_in_one_bin_and_no_bin_is_over_the_budget(lengths: list[int], budget: int) -> None:
    bins = pack(lengths, budget)
    assert sorted(place for each in bins for place in each) == list(range(len(lengths)))
    sums = [sum(lengths[place] for place in each) for each in bins]
    assert all(each == sorted(each) and each for each in bins)
    assert all(total <= budget for total in sums)
    assert pack(lengths, budget) == bins
    assert all(left + right > budget for at, left in enumerate(sums) for right in sums[at + 1 :] if right), (
        "two bins that fit into one were left apart"
    )


def test_the_longest_go_first_into_the_first_bin_that_has_room() -> None:
    assert pack([3, 9, 5, 5, 7, 1], 10) == [[1, 5], [0, 4], [2, 3]]
    assert pack([4, 4, 4], 8) == [[0, 1], [2]]
    assert pack([], 8) == []


@pytest.mark.parametrize(("lengths", "says"), [([3, 11], "sequence 1 has 11 tokens"), ([3, 0], "sequence 1 has 0")])
def test_what_fits_no_bin_is_refused(lengths: list[int], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        pack(lengths, 10)


@given(LENGTHS)
def test_arrays_of_a_pack_follow_from_the_lengths(lengths: list[int]) -> None:
    starts, positions = segment_starts(lengths), position_ids(lengths)
    assert starts.dtype == positions.dtype == np.int32
    assert starts.tolist() == [sum(lengths[:place]) for place in range(len(lengths) + 1)]
    assert positions.tolist() == [place for length in lengths for place in range(length)]
    assert np.flatnonzero(positions == 0).tolist() == starts[:-1].tolist()


@given(LENGTHS, st.integers(0, 5))
def test_attention_covers_each_sequence_and_nothing_behind_it(lengths: list[int], more: int) -> None:
    width = max(lengths, default=0) + more
    mask = attention_mask(lengths, width)
    assert mask.tolist() == [[place < length for place in range(width)] for length in lengths] or not lengths
    assert attention_mask(lengths).shape == (len(lengths), max(lengths, default=0))


def test_a_sequence_wider_than_the_batch_is_refused() -> None:
    with pytest.raises(UsageError, match="5 tokens does not fit 4 columns"):
        attention_mask([5], 4)


@given(st.lists(st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=6), max_size=6), max_size=3))
def test_shared_prefixes_are_those_of_a_trie(sets: list[list[list[int]]]) -> None:
    report = prefix_report([[np.array(ids, np.int32) for ids in each] for each in sets])
    tries = [{tuple(ids[: place + 1]) for ids in each for place in range(len(ids))} for each in sets]
    flat = sum(len(ids) for each in sets for ids in each)
    assert report == PrefixReport(sum(map(len, sets)), flat, sum(map(len, tries)))
    assert report.saved == (1 - report.tree_tokens / flat if flat else None)


def test_ids_are_compared_whole() -> None:
    low, high = np.array([1, 256], np.int32), np.array([1, 65536, 3], np.int32)
    assert prefix_report([[low, high, low]]) == PrefixReport(3, 7, 4)
    assert prefix_report([[low], [low]]) == PrefixReport(2, 4, 4)
