"""Rollouts: the agent loop, all limits, one rollout, groups."""

from rollbook.rollout.env_check import EnvCheck, EnvFinding, EnvReport, check_env, env_report
from rollbook.rollout.group import group, rollout
from rollbook.rollout.histogram import Histogram
from rollbook.rollout.lag import LoopLag
from rollbook.rollout.limiter import Limiter, LimiterStats, Rate
from rollbook.rollout.limits import Budget, Limits
from rollbook.rollout.loaded import LoadedPolicy, derive_seed
from rollbook.rollout.phase import Phase
from rollbook.rollout.pool.orders import EnvFactory, GroupPlan, GroupRules
from rollbook.rollout.replay import replay
from rollbook.rollout.resources import ResourceLimit, Resources
from rollbook.rollout.rollout import RolloutSettings, head_for, run_rollout
from rollbook.rollout.session import Agent, Session, chat
from rollbook.rollout.snapshot import Snapshot, add_snapshots
from rollbook.rollout.staleness import StaleBy, StalenessBound
from rollbook.rollout.state import Stopped
from rollbook.rollout.stopwatch import Part, Stopwatch

__all__ = [
    "Agent",
    "Budget",
    "EnvCheck",
    "EnvFactory",
    "EnvFinding",
    "EnvReport",
    "GroupPlan",
    "GroupRules",
    "Histogram",
    "Limiter",
    "LimiterStats",
    "Limits",
    "LoadedPolicy",
    "LoopLag",
    "Part",
    "Phase",
    "Rate",
    "ResourceLimit",
    "Resources",
    "RolloutSettings",
    "Session",
    "Snapshot",
    "StaleBy",
    "StalenessBound",
    "Stopped",
    "Stopwatch",
    "add_snapshots",
    "chat",
    "check_env",
    "derive_seed",
    "env_report",
    "group",
    "head_for",
    "replay",
    "rollout",
    "run_rollout",
]
