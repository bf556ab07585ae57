"""The annotations that more than one room understands, as typed values.

Rules: a value of another shape is refused with the annotation's key (`UsageError`), never skipped. Where several
producers or steps say the same thing of a rollout, the highest step wins, then the one that came last.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from rollbook.errors import UsageError
from rollbook.trace.annotation import Annotation
from rollbook.trace.ending import Disposition

__all__ = ["ADVANTAGE", "DISPOSITION", "Advantage", "advantages", "dispositions"]

ADVANTAGE = "advantage"
"""Name of the annotation whose value is an `Advantage`."""

DISPOSITION = "disposition"
"""Name of the annotation whose value is a `Disposition`."""


class Advantage(msgspec.Struct, frozen=True, kw_only=True):
    """One rollout's advantage, and how its group computed it. It is computed once, when the group closes."""

    advantage: float | None
    """None: the rollout has no vote."""
    group: str
    seat: str
    values: dict[str, float]
    """Advantage by rollout, of those whose rewards made the baseline."""
    members: tuple[str, ...]
    """Every rollout of the group, those without a vote included."""
    baseline: float | None
    """None where nobody votes."""
    scheduled: int
    """Rollouts that were asked for."""
    used: int
    """Rollouts that voted."""
    estimator: str
    rules: str
    """Hash of the ending rules that were applied before."""


_Fact = TypeVar("_Fact", Advantage, Disposition)


def advantages(annotations: Iterable[Annotation]) -> dict[str, Advantage]:
    """The advantage of each rollout that has one."""
    return _newest(annotations, ADVANTAGE, Advantage)


def dispositions(annotations: Iterable[Annotation]) -> dict[str, Disposition]:
    """The disposition of each rollout that has one."""
    return _newest(annotations, DISPOSITION, Disposition)


def _newest(annotations: Iterable[Annotation], name: str, kind: type[_Fact]) -> dict[str, _Fact]:
    newest: dict[str, Annotation] = {}
    for each in annotations:
        if each.name != name or each.node is not None:
            continue
        known = newest.get(each.rollout)
        if known is None or each.step >= known.step:
            newest[each.rollout] = each
    return {rollout: _value(each, kind) for rollout, each in newest.items()}


def _value(annotation: Annotation, kind: type[_Fact]) -> _Fact:
    try:
        return msgspec.convert(annotation.value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"annotation {annotation.key} is no {kind.__name__}: {error}; its producer, '{annotation.producer}', can "
            "write it again with the same key, or its stream can be moved out of the run"
        ) from error
