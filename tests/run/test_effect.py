"""How one advantage is compared with another."""

from __future__ import annotations

import pytest

from rollbook.run.effect import Change, compare


@pytest.mark.parametrize(
    ("before", "after", "change"),
    [
        (None, None, Change.SAME),
        (None, 0.0, Change.SAME),
        (0.0, None, Change.SAME),
        (0.5, 0.5, Change.SAME),
        (0.5, 0.1 + 0.4, Change.SAME),
        (0.1 + 0.2, 0.3, Change.SAME),
        (0.5, -0.5, Change.FLIPPED),
        (-1e-6, 1.0, Change.FLIPPED),
        (0.5, None, Change.VANISHED),
        (-0.5, 0.0, Change.VANISHED),
        (None, -0.5, Change.APPEARED),
        (0.0, 0.5, Change.APPEARED),
        (0.5, 0.6, Change.RESIZED),
        (-2.0, -1.0, Change.RESIZED),
    ],
)
def test_an_advantage_is_compared_by_its_sign(before: float | None, after: float | None, change: Change) -> None:
    assert compare(before, after) is change
