"""Policy versions out of engines' labels and spans."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy.versions import label_of, spans_of, version_of
from rollbook.trace import Reason, RolloutFailure


@pytest.mark.parametrize(
    ("label", "version"),
    [
        ("default", 0), ("v7", 7), ("step-12", 12), ("12", 12), ("007", 7), ("a1b2", 2), ("2147483647", 2**31 - 1),
        ("", None), ("v", None), ("7b", None), ("v٣", None), ("12\n", None), ("default-x", None),
    ],
)  # fmt: skip
def test_labels(label: str, version: int | None) -> None:
    assert version_of(label) == version


@pytest.mark.parametrize("label", ["-1", "2147483648", "v" + "9" * 5000])
def test_versions_that_the_record_cannot_hold(label: str) -> None:
    with pytest.raises(RolloutFailure, match="no policy version") as caught:
        version_of(label)
    assert caught.value.reason is Reason.ENGINE_CONTRACT


@given(st.integers(0, 2**31 - 1))
def test_a_version_survives_its_label(version: int) -> None:
    assert version_of(label_of(version)) == version


@given(st.lists(st.tuples(st.sampled_from(["default", "v1", "step-1", "v2"]), st.integers(0, 5)), max_size=6))
def test_spans_say_of_each_token_what_they_said_before(parts: list[tuple[str, int]]) -> None:
    spans, at = [], 0
    for label, count in parts:
        spans.append((label, at, at + count))
        at += count
    found = spans_of(spans, at)
    assert [v for v, n in found for _ in range(n)] == [version_of(label) for label, n in parts for _ in range(n)]
    assert all(n > 0 for _, n in found)
    assert all(left[0] != right[0] for left, right in pairwise(found))
    with pytest.raises(RolloutFailure, match="cover"):
        spans_of(spans, at + 1)


@pytest.mark.parametrize("spans", [[("v1", 1, 3)], [("v1", 0, 2), ("v2", 1, 3)], [("v1", 0, 2), ("v2", 2, 1)]])
def test_gaps_and_overlaps_are_refused(spans: list[tuple[str, int, int]]) -> None:
    with pytest.raises(RolloutFailure, match="span"):
        spans_of(spans, 3)


def test_a_label_without_a_version_leaves_all_open() -> None:
    assert spans_of([("v1", 0, 2), ("candidate", 2, 3)], 3) == ()
