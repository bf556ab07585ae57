"""What other rules, rewards or another estimator do to the advantages of a run: counts and shares, no verdict.

An advantage is compared by its sign, for that is the direction in which the policy is pushed: it may flip, vanish
(there was one, and now there is none or it is 0), appear, keep its sign at another size, or stay. Shares are of the
rollouts that have an advantage before or after. Of estimators with advantages by turn the rollout's own is compared.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec

from rollbook.rewards import Outcome
from rollbook.trace import Disposition, Reason

__all__ = ["Change", "Effect", "ReasonEffect", "compare", "effect"]

SAME_WITHIN = 1e-9
"""Advantages that differ by less than this share of the larger are the same."""


class Change(StrEnum):
    """What became of one advantage."""

    FLIPPED = "flipped"
    """The other sign."""
    VANISHED = "vanished"
    """There was one; now there is none, or it is 0."""
    APPEARED = "appeared"
    """There was none, or it was 0; now there is one."""
    RESIZED = "resized"
    """The same sign, another size."""
    SAME = "same"


class ReasonEffect(msgspec.Struct, frozen=True, kw_only=True):
    """The attempts that ended for one reason."""

    reason: Reason
    attempts: int
    before: dict[str, int]
    """How many were decided by which rule; ``undecided``: nobody did."""
    after: dict[str, int]
    changes: dict[Change, int]
    """Of their own advantages."""


class Effect(msgspec.Struct, frozen=True, kw_only=True):
    """What a change does."""

    rollouts: int
    """With an advantage before or after."""
    changes: dict[Change, int]
    """Over these; all kinds are named."""
    flat_before: int
    """Groups without a signal."""
    flat_after: int
    reasons: tuple[ReasonEffect, ...]
    """By reason, in the order of the reasons."""

    def share(self, change: Change) -> float | None:
        """Of the rollouts with an advantage; None where there are none."""
        return self.changes[change] / self.rollouts if self.rollouts else None

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, with the shares."""
        return {**msgspec.to_builtins(self), "shares": {str(change): self.share(change) for change in Change}}


def compare(before: float | None, after: float | None) -> Change:
    """What became of one advantage; None: no vote."""
    old, new = before or 0.0, after or 0.0
    if math.isclose(old, new, rel_tol=SAME_WITHIN):
        return Change.SAME
    if not old:
        return Change.APPEARED
    if not new:
        return Change.VANISHED
    return Change.FLIPPED if (old > 0) is not (new > 0) else Change.RESIZED


def effect(
    outcomes: Iterable[Outcome],
    before: tuple[Mapping[str, Disposition], Mapping[str, float | None]],
    after: Mapping[str, float | None],
    *,
    flat: tuple[int, int],
) -> Effect:
    """The effect. `outcomes`: of all attempts, as they are decided now. `before`: dispositions and advantages by
    rollout; `after`: advantages. `flat`: groups without a signal, before and after."""
    fates, values = before
    rows: dict[Reason, _Rows] = {}
    for each in outcomes:
        row = rows.setdefault(each.reason, _Rows())
        old, new = values.get(each.rollout), after.get(each.rollout)
        decided = fates.get(each.rollout)
        row.before["undecided" if decided is None else decided.rule] += 1
        row.after[each.disposition.rule] += 1
        if old is not None or new is not None:
            row.changes[compare(old, new)] += 1
    whole = sum((row.changes for row in rows.values()), Counter[Change]())
    return Effect(
        rollouts=whole.total(),
        changes={change: whole[change] for change in Change},
        flat_before=flat[0],
        flat_after=flat[1],
        reasons=tuple(
            ReasonEffect(
                reason=reason,
                attempts=rows[reason].after.total(),
                before=dict(rows[reason].before),
                after=dict(rows[reason].after),
                changes=dict(rows[reason].changes),
            )
            for reason in Reason
            if reason in rows
        ),
    )


class _Rows:
    """Counts of one reason."""

    __slots__ = ("after", "before", "changes")

    def __init__(self) -> None:
        self.before, self.after = Counter[str](), Counter[str]()
        self.changes = Counter[Change]()
