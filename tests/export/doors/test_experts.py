"""Routed experts: known for every pass of every sample, or refused."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from rollbook.errors import UsageError
from rollbook.export.doors.experts import all_passes, by_token, passes
from rollbook.trace.sample import Sample
from tests.export.doors.made import made


def routed(sample: Sample) -> Sample:
    rows = np.arange(len(sample) * 2, dtype=np.uint16).reshape(len(sample), 1, 2)
    return dataclasses.replace(sample, routed_experts=rows, experts_known=np.arange(len(sample)) > 0)


def test_a_row_is_of_the_pass_over_its_token() -> None:
    (one,) = made("one_turn")
    assert passes(one) is None
    found = passes(routed(one))
    assert found is not None
    assert found[:, 0, 0].tolist() == [2 * (token + 1) for token in range(len(one) - 1)]
    assert by_token(found)[:, 0, 1].tolist() == [-1, *(2 * token + 1 for token in range(1, len(one)))]


def test_experts_that_are_not_known_for_all_are_refused() -> None:
    (one,) = made("one_turn")
    given = routed(one)
    assert given.experts_known is not None
    given.experts_known[3] = False
    with pytest.raises(UsageError, match="routed experts of 1 tokens are not known"):
        passes(given)


def test_all_samples_of_a_batch_have_them_or_none_has() -> None:
    one, two = made("one_turn", "two_turns")
    assert all_passes([one, two]) is None
    assert [len(each) for each in all_passes([routed(one), routed(two)]) or ()] == [len(one) - 1, len(two) - 1]
    for mixed in ([routed(one), two], [one, routed(two)]):
        with pytest.raises(UsageError, match="has no routed experts, and others"):
            all_passes(mixed)
