"""Annotations: facts that come after a trace was sealed (scores, dispositions, advantages, findings), keyed by
producer and step.

A later annotation with the same producer, step, rollout, node and name replaces the earlier one when they are read
(`fold`); nothing is ever rewritten on disk.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

__all__ = ["Annotation", "fold"]


class Annotation(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True, omit_defaults=True):
    """One later fact about a rollout, or about one node of it."""

    producer: str
    """Who says it: ``rewards``, ``trainer``, ``audit``, a person."""
    name: str
    """What it is: ``advantage``, ``disposition``, ``reward``, ``label``."""
    rollout: str
    value: Any
    """Plain data."""
    step: int = 0
    """The producer's own step (training step, pass)."""
    node: int | None = None
    """None: about the whole rollout."""
    created: float | None = None
    """Unix seconds."""

    @property
    def key(self) -> tuple[str, int, str, int | None, str]:
        """What makes a later annotation replace an earlier one."""
        return self.producer, self.step, self.rollout, self.node, self.name


def fold(annotations: Iterable[Annotation]) -> list[Annotation]:
    """The newest of each key, in the order in which the keys first came."""
    newest: dict[tuple[str, int, str, int | None, str], Annotation] = {}
    for annotation in annotations:
        newest[annotation.key] = annotation
    return list(newest.values())
