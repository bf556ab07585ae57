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
from rollbook.trace.episode import GroupKey

__all__ = [
    "ADVANTAGE",
    "DISPOSITION",
    "Advantage",
    "GroupAdvantages",
    "advantages",
    "dispositions",
    "fact",
]

ADVANTAGE = "advantage"
"""Name of the annotation whose value is an `Advantage`."""

DISPOSITION = "disposition"
"""Name of the annotation whose value is a `Disposition`."""


class GroupAdvantages(msgspec.Struct, frozen=True, kw_only=True):
    """The advantages of one closed group, and how they were computed: once, when it closed."""

    group: str
    seat: str
    values: dict[str, float]
    """Advantage by rollout, of the members that vote; nobody else has one."""
    members: tuple[str, ...]
    """Every rollout that the group held when it closed, those without a vote included."""
    baseline: float | None
    """The mean of the voters' rewards, penalties included; None where nobody votes."""
    scheduled: int
    """How many rollouts were asked for."""
    used: int
    """How many vote."""
    estimator: str
    """By name."""
    rules: str
    """Hash of the ending rules that were applied before."""

    @property
    def key(self) -> GroupKey:
        """What was compared with each other."""
        return GroupKey(self.group, self.seat)


class Advantage(GroupAdvantages, frozen=True, kw_only=True):
    """One rollout's advantage, with all that is known of its group."""

    advantage: float | None
    """None: the rollout has no vote."""


_Fact = TypeVar("_Fact", Advantage, GroupAdvantages, Disposition)


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
    return {rollout: fact(each, kind) for rollout, each in newest.items()}


def fact(annotation: Annotation, kind: type[_Fact]) -> _Fact:
    """The value of one annotation as a `kind`; raises `UsageError` where it has another shape."""
    try:
        return msgspec.convert(annotation.value, kind)
    except msgspec.ValidationError as error:
        raise UsageError(
            f"annotation {annotation.key} is no {kind.__name__}: {error}; its producer, '{annotation.producer}', can "
            "write it again with the same key, or its stream can be moved out of the run"
        ) from error
