"""What the rollouts of one worker share: a limiter for each resource, under its name.

The names: `engine`, `tool:NAME` for each tool, `sandbox` (taken while an environment is set up), `scoring` (taken
while a rollout is scored), `judge` (taken for each request to a judge). One that nobody limits still counts who uses
it. Scoring alone has a limit by itself, the machine's cores: a batch that ends together would else start all its
scorers at once, and each of them would run into its own limit of time.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rollbook.envs.offloop import close_processes, cores
from rollbook.errors import ConfigError
from rollbook.rollout.collecting import Collector
from rollbook.rollout.judging import JudgeLoader, JudgePolicies
from rollbook.rollout.lag import LoopLag
from rollbook.rollout.limiter import Limiter, LimiterStats
from rollbook.rollout.rates import SharedRate
from rollbook.rollout.roster import Roster
from rollbook.rollout.snapshot import Snapshot
from rollbook.rollout.turnstile import Turnstile

__all__ = ["ResourceLimit", "Resources", "check_limits"]

ENGINE, SANDBOX, SCORING, JUDGE = "engine", "sandbox", "scoring", "judge"
TOOL = "tool:"
"""Begins the name of a tool's resource."""


class ResourceLimit(msgspec.Struct, frozen=True, kw_only=True):
    """How much of one resource may be used. None: no limit."""

    limit: int | None = None
    """So many at once, in each worker."""
    per_second: float | None = None
    """So many entries in any second, rounded up to a whole number; over all workers of the machine together."""
    burst: int = 1
    """So many of these may come at once; 1: evenly spaced. At most `per_second`."""

    def __post_init__(self) -> None:
        if self.limit is not None and self.limit < 1:
            raise ConfigError(f"a resource's limit must be at least 1 or None, not {self.limit}")
        if self.per_second is not None and not 0 < self.per_second < float("inf"):
            raise ConfigError(f"a resource's per_second must be above 0 or None, not {self.per_second}")
        most = 1 if self.per_second is None else max(self.per_second, 1)
        if not 1 <= self.burst <= most:
            raise ConfigError(f"a resource's burst must be between 1 and per_second, not {self.burst}")


def check_limits(limits: Mapping[str, ResourceLimit]) -> None:
    """Raises `ConfigError` for a name that no resource has."""
    for name in limits:
        if name not in (ENGINE, SANDBOX, SCORING, JUDGE) and not (name.startswith(TOOL) and name != TOOL):
            raise ConfigError(f"no resource is called {name!r}; they are engine, sandbox, scoring, judge and tool:NAME")


class Resources:
    """The limiters of one worker, and who is in flight there. Belongs to one event loop. Inside of ``async with`` the
    lateness of the loop is measured, and at its end the processes that computed beside it are ended."""

    def __init__(
        self,
        limits: Mapping[str, ResourceLimit] | None = None,
        *,
        rates: Path | None = None,
        load_judge: JudgeLoader | None = None,
    ) -> None:
        """`limits` by the resource's name. `rates`: the folder of the rates that processes keep together; None: that
        of this machine. `load_judge`: loads a judge's policy by its name; None: no judge can be named."""
        check_limits(limits or {})
        self._limits = {SCORING: ResourceLimit(limit=cores()), **(limits or {})}
        self._rates = rates
        self._open_rates: list[SharedRate] = []
        self._tools: dict[str, Limiter] = {}
        self.engine = self._limiter(ENGINE)
        """Requests to the engine."""
        self.sandbox = self._limiter(SANDBOX)
        """Environments that are being set up."""
        self.scoring = self._limiter(SCORING)
        """Rollouts that are being scored."""
        self.judge = self._limiter(JUDGE)
        """Requests to judges."""
        self.judge_policies = JudgePolicies(load_judge)
        """Who judges."""
        self.turnstile = Turnstile()
        """Where rollouts wait for their turn to compute."""
        self.roster = Roster()
        """The rollouts in flight."""
        self._lag = LoopLag()
        self._collector = Collector(self.roster.counts)

    async def __aenter__(self) -> Resources:
        await self._lag.__aenter__()
        await self._collector.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._collector.__aexit__()
        await self._lag.__aexit__()
        await close_processes()
        await self.judge_policies.close()
        while self._open_rates:
            self._open_rates.pop().close()

    def tool(self, name: str) -> Limiter:
        """The limiter of the tool `name`."""
        if name not in self._tools:
            self._tools[name] = self._limiter(f"{TOOL}{name}")
        return self._tools[name]

    def stats(self) -> tuple[LimiterStats, ...]:
        """All limiters, the tools' by name and last."""
        tools = (self._tools[name] for name in sorted(self._tools))
        return tuple(each.stats() for each in (self.engine, self.sandbox, self.scoring, self.judge, *tools))

    def snapshot(self) -> Snapshot:
        """How things stand in this worker."""
        return self.roster.snapshot(self.stats(), self._lag.histogram)

    def _limiter(self, name: str) -> Limiter:
        asked = self._limits.get(name, ResourceLimit())
        if asked.per_second is None:
            return Limiter(name, asked.limit)
        rate = SharedRate.of(name, asked.per_second, asked.burst, self._rates)
        self._open_rates.append(rate)
        return Limiter(name, asked.limit, rate=rate)
