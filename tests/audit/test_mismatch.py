"""The audit judges what a trainer compared."""

from __future__ import annotations

import pytest

from rollbook.audit.report import Status
from rollbook.trace.facts import Mismatch
from rollbook.train.mismatch import annotate
from tests.audit.build import check, sound


def row(mean: float, most: float, tokens: int = 2) -> Mismatch:
    return Mismatch(tokens=tokens, mean=mean, most=most, k1=mean / 2, k3=mean / 4, version=0)


def test_the_mean_is_over_all_tokens_and_what_is_far_is_pointed_at() -> None:
    notes = annotate({"a": row(0.1, 0.2, tokens=1), "b": row(0.4, 1.5, tokens=3)}, step=0)
    found = check("mismatch", *map(sound, "abc"), annotations=notes)
    assert found.value == pytest.approx(0.325)
    assert found.status is Status.BROKE
    assert found.n == 4
    assert found.details["most"] == 1.5
    assert found.details["k3"] == pytest.approx(0.325 / 4)
    assert [each.rollout for each in found.findings] == ["b"]


def test_little_is_fine_and_nothing_compared_is_not_judged() -> None:
    assert check("mismatch", sound("a"), annotations=annotate({"a": row(0.05, 0.9)}, 3)).status is Status.OK
    assert check("mismatch", sound("a")).status is Status.NOT_JUDGED
    silent = annotate({"a": Mismatch(tokens=0, unknown=4)}, 0)
    nothing = check("mismatch", sound("a"), annotations=silent)
    assert nothing.status is Status.NOT_JUDGED
    assert "gave no logprobs" in nothing.says
