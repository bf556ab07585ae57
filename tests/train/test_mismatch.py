"""Behaviour against trainer: each number against its definition."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rollbook.trace.facts import MISMATCH, Mismatch, mismatches
from rollbook.train.learner import Learner
from rollbook.train.mismatch import PRODUCER, annotate, compare, together
from tests.train.made import Toy, member, trained


def floats(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def test_the_numbers_are_what_they_say() -> None:
    found = compare(floats(-1.0, -2.0), floats(-1.5, -1.75), version=3)
    assert found == Mismatch(
        tokens=2,
        mean=pytest.approx(0.375),
        most=0.5,
        k1=pytest.approx(0.125),
        k3=pytest.approx((math.exp(-0.5) - 0.5 + math.exp(0.25) - 1.25 - 1 + 1) / 2, abs=1e-6),
        version=3,
    )


def test_a_token_without_a_logprob_is_counted_and_in_no_mean() -> None:
    found = compare(floats(-1.0, np.nan), floats(-1.0, -9.0), version=None)
    assert (found.tokens, found.unknown, found.most) == (1, 1, 0.0)
    nothing = compare(floats(np.nan), floats(-9.0), version=None)
    assert (nothing.tokens, nothing.unknown, nothing.mean, nothing.most) == (0, 1, None, None)
    assert together([nothing]).mean is None


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.lists(st.tuples(st.floats(-9, 0), st.floats(-9, 0)), min_size=1, max_size=6), min_size=1, max_size=4)
)
def test_several_together_are_all_their_tokens(rows: list[list[tuple[float, float]]]) -> None:
    parts = [compare(floats(*(b for b, _ in row)), floats(*(t for _, t in row)), version=0) for row in rows]
    whole = together(parts, version=0)
    every = [pair for row in rows for pair in row]
    straight = compare(floats(*(b for b, _ in every)), floats(*(t for _, t in every)), version=0)
    assert whole.tokens == straight.tokens
    assert whole.most == straight.most
    for name in ("mean", "k1", "k3"):
        assert getattr(whole, name) == pytest.approx(getattr(straight, name), rel=1e-9, abs=1e-12)
    assert whole.k3 is not None
    assert whole.k3 >= 0


def test_each_batch_is_compared_and_its_annotations_read_back() -> None:
    traces = [member("r0", (10, 11), 1.0, logprobs=(-0.25, -0.5)), member("r1", (12,), 0.0)]
    learned = Learner(Toy()).step(trained(traces), version=4)
    assert learned.by_rollout.keys() == {"r0", "r1"}
    assert learned.mismatch.tokens == learned.tokens == 3
    notes = annotate(learned.by_rollout, step=7)
    assert {(each.producer, each.name, each.step) for each in notes} == {(PRODUCER, MISMATCH, 7)}
    assert mismatches(notes) == learned.by_rollout
    assert learned.by_rollout["r0"].version == 4
