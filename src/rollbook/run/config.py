"""What a run is asked to do, as one frozen value that is stored with it.

A run that is resumed must be asked for the same; `differences` names what is not. How many rollouts run at once is
not part of it: no rollout is asked for anything else by it.
"""

from __future__ import annotations

import json
from datetime import date
from typing import Any, cast

import msgspec

from rollbook.errors import ConfigError
from rollbook.rewards import DEFAULT_ESTIMATOR, refuse_whole_batch
from rollbook.rollout import GroupRules, Limits, ResourceLimit
from rollbook.rollout.breaker import BreakerRules
from rollbook.rollout.resources import check_limits
from rollbook.run.access import REQUEST_TIMEOUT
from rollbook.trace import ContextPolicy, EndingRules, Sampling

__all__ = ["RunConfig", "differences"]


class RunConfig(msgspec.Struct, frozen=True, kw_only=True):
    """One run: so many tasks of one environment, a group of rollouts for each."""

    environment: str
    """A registered name or ``package.module:Class``."""
    options: dict[str, Any] = {}
    """Passed to the environment."""
    policy: str = "local"
    """In the policy grammar."""
    tasks: int = 8
    """How many tasks, each with a group of rollouts."""
    group: int = 4
    """Rollouts per task."""
    seed: int = 0
    """Decides the tasks, and the seed that each request to the engine carries. The same seed gives the same tokens only
    where the engine repeats itself: the embedded one does where it serves one request at a time."""
    limits: Limits = Limits()
    sampling: Sampling = Sampling()
    context: ContextPolicy = ContextPolicy.KEEP
    """How earlier turns stand in later prompts: as sampled, or as the chat template writes them later."""
    tokenizer: str | None = None
    """Of a remote engine's model: the path of a tokenizer folder or a GGUF file, or a policy that has files; None:
    where the engine says that its model lies."""
    request_timeout: float = REQUEST_TIMEOUT
    """Seconds that one request to an engine behind a URL may take, the engine's queue included; more is
    `engine_timeout`."""
    template: str | None = None
    """The path of a chat template to use instead of the model's own; None: the model's own."""
    template_date: date | None = None
    """What a chat template that asks for the day is told; None: such a template is refused."""
    template_variables: dict[str, Any] = {}
    """Further variables of the chat template, e.g. ``enable_thinking``; plain JSON data."""
    rules: EndingRules = EndingRules()
    groups: GroupRules = GroupRules()
    """When groups close, and what is made of those that lack members or a signal."""
    resources: dict[str, ResourceLimit] = {}
    """Limits by the resource's name: ``engine``, ``tool:NAME``, ``sandbox``, ``scoring``, ``judge``."""
    breaker: BreakerRules = BreakerRules()
    """When so many attempts fail for reasons outside of the policy that the run stops."""
    estimator: str = DEFAULT_ESTIMATOR
    """How advantages are computed, one of `rollbook.rewards.ESTIMATORS`; not one that needs the whole batch."""
    outcome_part: str | None = None
    """The part of the reward that must differ within a group for anything to be learned from it; None: any difference
    of rewards counts."""

    def __post_init__(self) -> None:
        for name in ("tasks", "group"):
            if msgspec.structs.asdict(self)[name] < 1:
                raise ConfigError(f"a run needs at least one of '{name}'")
        for name, votes in (("min_used", self.groups.min_used), ("enough", self.groups.enough)):
            if votes is not None and votes > self.group:
                raise ConfigError(f"groups: {name} is {votes}, and a group of {self.group} never has so many votes")
        if not self.request_timeout > 0:
            raise ConfigError(f"'request_timeout' must be above 0, not {self.request_timeout:g}")
        check_limits(self.resources)
        refuse_whole_batch(self.estimator)

    def plain(self) -> dict[str, Any]:
        """The configuration as plain data, just as it reads back from the record: JSON knows no tuples.

        Raises `ConfigError` where an option or a template variable is none.
        """
        try:
            return json.loads(json.dumps(msgspec.to_builtins(self)))
        except TypeError as error:
            raise ConfigError(f"options and template variables must be plain JSON data: {error}") from error


def differences(stored: dict[str, Any], asked: dict[str, Any], prefix: str = "") -> list[str]:
    """Where two plain configurations differ, one line each: ``limits.max_turns: 16 -> 8``."""
    found: list[str] = []
    for key in sorted({*stored, *asked}):
        old, new = stored.get(key), asked.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            found += differences(cast("dict[str, Any]", old), cast("dict[str, Any]", new), f"{prefix}{key}.")
        elif old != new:
            found.append(f"{prefix}{key}: {old!r} -> {new!r}")
    return found
