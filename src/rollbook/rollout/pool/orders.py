"""Orders: one attempt each, as plain data that crosses processes; and the rules by which a group is kept together."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from rollbook.envs import Environment
from rollbook.errors import ConfigError
from rollbook.rollout.loaded import derive_seed, rollout_id
from rollbook.trace import Reason, Task

__all__ = ["EnvFactory", "GroupPlan", "GroupRules", "Order"]

EnvFactory = Callable[[], Environment]
"""Makes the environment of one rollout; an `Environment` class is one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One scheduled group."""

    id: str
    task: Task
    size: int
    """How many rollouts are compared."""
    round: int = 0
    """How often the same task was scheduled before, in this run; every round draws anew."""


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to run."""

    group: str
    task: Task
    member: int
    """Place within the group."""
    attempt: int = 0
    """0 for the first try of this member."""
    round: int = 0
    """As in its group's plan."""
    earlier: tuple[Reason, ...] = ()
    """How the attempts before it ended."""
    retries_left: int = 0
    """Requests to the engine that may still be made again after a failure in transit."""

    @property
    def rollout(self) -> str:
        """The id of the rollout that it makes."""
        return rollout_id(self.group, self.member, self.attempt)

    def seed(self, run_seed: int) -> int:
        """The rollout's own seed: another one for each member, attempt and round of a task."""
        rounds = (self.round,) if self.round else ()
        return derive_seed(run_seed, self.task.id, self.member, self.attempt, *rounds)


class GroupRules(msgspec.Struct, frozen=True, kw_only=True):
    """When a group closes, and what becomes of it. The defaults wait for every member and replace none."""

    enough: int | None = None
    """Close as soon as so many members have a vote; the others are cancelled. This prefers fast rollouts: the
    selection ledger shows it. None: wait for all."""
    deadline: float | None = None
    """Seconds from the group's first start to its close, whoever still runs. None: no limit."""
    min_used: int = 1
    """The fewest members with a vote for which the group is used; with fewer all of it is dropped."""
    refill: int = 0
    """Members that may take the place of dropped ones, for each group."""
    resample: int = 0
    """Further tasks that may take the place of groups without a signal (every vote equal), for the whole run."""

    def __post_init__(self) -> None:
        checks = (
            ("enough", self.enough is None or self.enough >= 1),
            ("deadline", self.deadline is None or self.deadline > 0),
            ("min_used", self.min_used >= 1),
            ("refill", self.refill >= 0),
            ("resample", self.resample >= 0),
        )
        for name, fine in checks:
            if not fine:
                raise ConfigError(f"GroupRules: {name} cannot be {msgspec.structs.asdict(self)[name]}")
        if self.enough is not None and self.enough < self.min_used:
            raise ConfigError(
                f"GroupRules: enough ({self.enough}) is below min_used ({self.min_used}): groups would close too early "
                "to be used"
            )
