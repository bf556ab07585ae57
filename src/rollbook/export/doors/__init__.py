"""Doors to trainers: samples in the record that each trainer takes, and what it would read in them.

One module for each record, one row here; `rollbook.export.doors.door` says what a door is, `check_exporter` proves it.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import cast

from rollbook.errors import UsageError
from rollbook.export.doors.door import Door, DoorModule, ExporterCheck, Row

__all__ = ["DOORS", "Door", "DoorModule", "ExporterCheck", "Row", "find_door", "open_door"]

_C = ExporterCheck

DOORS: Mapping[str, Door] = MappingProxyType(
    {
        door.name: door
        for door in (
            Door(
                name="verl",
                about="AgentLoopOutput: what an agent loop of verl returns, one for each branch.",
                module="rollbook.export.doors.verl",
            ),
            Door(
                name="verl_batch",
                about="DataProto: a padded batch of verl, advantages and weights included.",
                module="rollbook.export.doors.verl_batch",
            ),
            Door(
                name="slime",
                about="Sample of slime: from a custom generate function, or by a debug rollout file.",
                module="rollbook.export.doors.slime",
            ),
            Door(
                name="miles",
                about="Sample of Miles: from a custom generate function, or by a debug rollout file.",
                module="rollbook.export.doors.miles",
            ),
        )
    }
)
"""All doors by name."""


def find_door(name: str) -> Door:
    """A door by name; raises `UsageError` with the names there are."""
    door = DOORS.get(name)
    if door is None:
        raise UsageError(f"no door {name!a}; doors: {', '.join(sorted(DOORS))}")
    return door


def open_door(name: str) -> DoorModule:
    """The module of a door; raises `UsageError` with the names there are."""
    return cast("DoorModule", importlib.import_module(find_door(name).module))
