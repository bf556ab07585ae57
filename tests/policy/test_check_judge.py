"""What numbers are taken to say of an engine."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from rollbook.policy import PolicyVerdict
from rollbook.policy.check_judge import CERTAIN, found_kind, judge_abort, shared
from rollbook.trace import LogprobKind

PLACES, VOCABULARY = 8, 12


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


@given(st.integers(0, 10_000), st.floats(0.2, 8.0), st.sampled_from(list(LogprobKind)[:3]), st.floats(0, 0.004))
def test_the_kind_is_found_or_nothing_is_said(seed: int, spread: float, kind: LogprobKind, noise: float) -> None:
    """Over models from flat to sure, and rounding between two requests."""
    rng = np.random.default_rng(seed)
    logits = rng.normal(0, spread, (PLACES, VOCABULARY))
    wobble = rng.uniform(-noise, noise, (2, PLACES))
    cool = {LogprobKind.RAW: logits, LogprobKind.TEMPERATURE: logits / 0.5}
    plain = float(log_softmax(logits)[0].min())
    if kind is LogprobKind.PROCESSED:
        top, second = np.zeros(PLACES), np.zeros(PLACES)
    else:
        top, second = log_softmax(logits).max(-1) + wobble[0], log_softmax(cool[kind]).max(-1) + wobble[1]
    found = found_kind(plain, top.astype(np.float32), second.astype(np.float32))
    sure = bool((top > CERTAIN).all())
    if not sure or kind is LogprobKind.PROCESSED:
        assert found is kind or (kind is LogprobKind.PROCESSED and plain > CERTAIN - 0.01 and found is None)


def test_logprobs_that_fall_when_it_cools_are_of_no_kind() -> None:
    top, cool = np.array([-0.5, -0.7], np.float32), np.array([-0.2, -1.4], np.float32)
    assert found_kind(None, top, cool) is None


def test_a_model_that_is_sure_tells_no_kind() -> None:
    sure = np.array([-0.01, -0.02], np.float32)
    assert found_kind(-0.03, sure, sure) is None
    assert found_kind(None, sure, sure) is None
    assert found_kind(-3.0, sure, sure) is LogprobKind.PROCESSED


def test_cancelled_requests_may_hold_up_for_two_seconds() -> None:
    assert judge_abort(8, 0.5, 3.4).verdict is PolicyVerdict.FINE
    assert judge_abort(8, 0.5, 3.6).verdict is PolicyVerdict.DIFFERS
    assert judge_abort(0, 0.5, 0.5).verdict is PolicyVerdict.UNKNOWN


@given(st.lists(st.integers(0, 2)), st.lists(st.integers(0, 2)))
def test_shared_is_the_common_beginning(one: list[int], other: list[int]) -> None:
    size = shared(np.array(one, np.int32), np.array(other, np.int32))
    assert one[:size] == other[:size]
    assert size == min(len(one), len(other)) or one[size] != other[size]
