"""Rollbook: the rollout layer of agentic RL.

The names that users import stand in `_NAMES`; each is loaded when it is first asked for, so importing the package costs
next to nothing. Four of them (`audit`, `export`, `rollout`, `run`) are also the names of rooms: on the package they
always mean the function, whichever room was imported before, and ``from rollbook.audit import Gate`` finds the room.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from rollbook.audit import audit as audit
    from rollbook.envs import Environment as Environment
    from rollbook.envs import Rewards as Rewards
    from rollbook.envs import StepResult as StepResult
    from rollbook.envs import tool as tool
    from rollbook.errors import RollbookError as RollbookError
    from rollbook.errors import UsageError as UsageError
    from rollbook.export import check_exporter as check_exporter
    from rollbook.export import export as export
    from rollbook.policy import ScriptedPolicy as ScriptedPolicy
    from rollbook.policy import check_policy as check_policy
    from rollbook.rewards import advantages as advantages
    from rollbook.rollout import Limits as Limits
    from rollbook.rollout import LoadedPolicy as LoadedPolicy
    from rollbook.rollout import RolloutSettings as RolloutSettings
    from rollbook.rollout import StalenessBound as StalenessBound
    from rollbook.rollout import check_env as check_env
    from rollbook.rollout import group as group
    from rollbook.rollout import rollout as rollout
    from rollbook.run import RunConfig as RunConfig
    from rollbook.run import check_template as check_template
    from rollbook.run import import_traces as import_traces
    from rollbook.run import load_policy as load_policy
    from rollbook.run import load_renderer as load_renderer
    from rollbook.run import open_run as open_run
    from rollbook.run import open_stream as open_stream
    from rollbook.run import run as run
    from rollbook.trace import Ending as Ending
    from rollbook.trace import EndingRules as EndingRules
    from rollbook.trace import Sampling as Sampling
    from rollbook.trace import Task as Task
    from rollbook.trace import Trace as Trace
    from rollbook.worlds import make as make
    from rollbook.worlds import register as register

_NAMES = {
    "Ending": "trace",
    "EndingRules": "trace",
    "Environment": "envs",
    "Limits": "rollout",
    "LoadedPolicy": "rollout",
    "Rewards": "envs",
    "RollbookError": "errors",
    "RolloutSettings": "rollout",
    "RunConfig": "run",
    "Sampling": "trace",
    "ScriptedPolicy": "policy",
    "StalenessBound": "rollout",
    "StepResult": "envs",
    "Task": "trace",
    "Trace": "trace",
    "UsageError": "errors",
    "advantages": "rewards",
    "audit": "audit",
    "check_env": "rollout",
    "check_exporter": "export",
    "check_policy": "policy",
    "check_template": "run",
    "export": "export",
    "group": "rollout",
    "import_traces": "run",
    "load_policy": "run",
    "load_renderer": "run",
    "make": "worlds",
    "open_run": "run",
    "open_stream": "run",
    "register": "worlds",
    "rollout": "rollout",
    "run": "run",
    "tool": "envs",
}
"""Public name -> the room that it comes from."""


__all__ = list(_NAMES)  # pyright: ignore[reportUnsupportedDunderAll] (the names stand above, for type checkers)


class _Face(ModuleType):
    """The package: a room that is imported does not take the place of the function of its name."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name in _NAMES and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Face


def __getattr__(name: str) -> Any:
    room = _NAMES.get(name)
    if room is None:
        raise AttributeError(f"module 'rollbook' has no attribute {name!r}")
    value = vars(importlib.import_module(f"rollbook.{room}"))[name]
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
