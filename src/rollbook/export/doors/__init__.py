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
_WEIGHS = (
    "A row does not say which attempt it is of; the loss is a mean over the tokens of the batch, so an attempt weighs "
    "by its tokens however it branches."
)
_NO_REWARD = "The record holds the advantage and no reward."
_NEMO_EXPERTS = "Routed experts are not handed on to NeMo-RL."

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
            Door(
                name="trl",
                about="The columns that a rollout_func gives TRL's GRPOTrainer, one row for each prompt.",
                module="rollbook.export.doors.trl",
                lacks={_C.EXPERT_ROWS: "TRL replays no routed experts."},
                refuses={_C.BRANCH_WEIGHT: "TRL has exactly one row for each prompt.", _C.CONTIGUOUS: "Likewise."},
            ),
            Door(
                name="trl_async",
                about="RolloutSample of TRL: what an injected rollout worker gives AsyncGRPOTrainer.",
                module="rollbook.export.doors.trl_async",
                lacks={
                    _C.BRANCH_WEIGHT: _WEIGHS,
                    _C.CONTIGUOUS: "A row says which group it is of, not which attempt.",
                    _C.EXPERT_ROWS: "TRL replays no routed experts.",
                },
            ),
            Door(
                name="prime_rl",
                about="TrainingSample of prime-rl: what its orchestrator sends to its trainer.",
                module="rollbook.export.doors.prime_rl",
                lacks={
                    _C.BRANCH_WEIGHT: _WEIGHS,
                    _C.REWARD_SEEN: _NO_REWARD,
                    _C.CONTIGUOUS: "A row does not say which attempt it is of.",
                },
            ),
            Door(
                name="skyrl",
                about="GeneratorOutput of SkyRL, step-wise where attempts branch.",
                module="rollbook.export.doors.skyrl",
            ),
            Door(
                name="areal",
                about="What a workflow of AReaL returns: arrays for each attempt.",
                module="rollbook.export.doors.areal",
                lacks={_C.EXPERT_ROWS: "AReaL's trajectory holds no routed experts."},
            ),
            Door(
                name="tinker",
                about="Datum of Tinker, as its cookbook makes them.",
                module="rollbook.export.doors.tinker",
                lacks={
                    _C.BRANCH_WEIGHT: "A row does not say which attempt it is of; Tinker's losses sum over the tokens.",
                    _C.REWARD_SEEN: _NO_REWARD,
                    _C.CONTIGUOUS: "A row does not say which attempt it is of.",
                    _C.EXPERT_ROWS: "Tinker replays no routed experts.",
                },
            ),
            Door(
                name="nemo_rl",
                about="Completion of NeMo-RL: one message log for each attempt.",
                module="rollbook.export.doors.nemo_rl",
                lacks={_C.EXPERT_ROWS: _NEMO_EXPERTS},
                refuses={
                    _C.BRANCH_WEIGHT: "NeMo-RL has one message log for each attempt.",
                    _C.CONTIGUOUS: "Likewise.",
                },
            ),
            Door(
                name="nemo_rl_batch",
                about="The columns that NeMo-RL's clipped policy-gradient loss takes, a row for each branch.",
                module="rollbook.export.doors.nemo_rl_batch",
                lacks={
                    _C.BRANCH_WEIGHT: _WEIGHS,
                    _C.CONTIGUOUS: "A row does not say which attempt it is of.",
                    _C.EXPERT_ROWS: _NEMO_EXPERTS,
                },
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
