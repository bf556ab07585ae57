"""The kind of an engine's logprobs, from what it lists."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from rollbook.errors import UsageError
from rollbook.policy.logprob_kind import TEMPERATURE, kind_of
from rollbook.trace import LogprobKind

Listed = dict[int, float]


def lists(logits: list[float], *, scales: bool, truncates: bool, noise: float = 0.0) -> tuple[Listed, Listed, Listed]:
    """What an engine lists that counts temperature and truncation in, or does not."""

    def listed(values: np.ndarray) -> Listed:
        logs = values - np.log(np.exp(values).sum())
        return {token: max(float(value), -9999.0) - noise * token for token, value in enumerate(logs)}

    plain = np.array(logits)
    best = np.where(plain == plain.max(), plain, -np.inf)
    return listed(plain), listed(plain / TEMPERATURE if scales else plain), listed(best if truncates else plain)


KINDS = {
    (False, False): LogprobKind.RAW,
    (True, False): LogprobKind.TEMPERATURE,
    (True, True): LogprobKind.PROCESSED,
    (False, True): LogprobKind.UNKNOWN,
}


@pytest.mark.parametrize(("mode", "kind"), KINDS.items())
@given(st.lists(st.floats(-5, 5), min_size=2, max_size=5, unique_by=lambda v: round(v * 2)))
def test_the_four_modes(mode: tuple[bool, bool], kind: LogprobKind, logits: list[float]) -> None:
    scales, truncates = mode
    assume(max(logits) - min(logits) > 0.5)
    assert kind_of(*lists(logits, scales=scales, truncates=truncates, noise=0.002)) is kind


@pytest.mark.parametrize(
    ("plain", "tempered", "cut"),
    [
        ({}, {}, {}),
        ({1: -0.5}, {1: -0.5}, {1: 0.0}),
        ({1: -1.0, 2: -1.1}, {1: -1.0, 2: -1.2}, {1: -1.0, 2: -1.1}),
        ({1: -1.0, 2: -3.0}, {3: -1.0, 4: -3.0}, {1: -1.0, 2: -3.0}),
        ({1: -1.0, 2: -2.0}, {1: -1.0, 2: -2.5}, {1: -1.0, 2: -2.0}),
        ({1: -1.0, 2: -9999.0}, {1: -1.0, 2: -9999.0}, {1: -1.0, 2: -9999.0}),
    ],
)
def test_what_cannot_be_told_is_unknown(plain: Listed, tempered: Listed, cut: Listed) -> None:
    assert kind_of(plain, tempered, cut) is LogprobKind.UNKNOWN


@pytest.mark.parametrize("plain", [{1: 3.0, 2: -1.0}, {1: -0.1, 2: -0.2}])
def test_logits_are_refused(plain: Listed) -> None:
    with pytest.raises(UsageError, match="logits"):
        kind_of(plain, plain, plain)
