"""Stored runs without an engine: traces that ended as told, judged as a run judges them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from rollbook.envs import Environment
from rollbook.rewards import advantages, annotate, dispositions
from rollbook.rollout.pool import GROUP_CLOSED
from rollbook.run import RunConfig
from rollbook.run.resume import Stored
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Disposition, Ending, Fate, Reason, Task, Trace, TurnReward
from rollbook.worlds import register
from tests.run.run_made import small_trace

__all__ = ["WORKED_EXAMPLE", "Attempt", "Scores", "judged"]


class Scores(Environment):
    """Scores by what stands here, so that a test can change its mind."""

    rewards: dict[str, float] = {}  # noqa: RUF012 - the tests' own, set anew by each

    def __init__(self, extra: float = 0.0) -> None:
        self.extra = extra

    def tasks(self, count: int, seed: int = 0) -> list[Task]:
        return [Task(id=f"t{place}", prompt="p") for place in range(count)]

    async def score(self, trace: Trace) -> float | None:
        assert trace.reward is None
        assert not trace.tail.turn_rewards
        return self.rewards[trace.id] + self.extra


register("test-scores", Scores)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt: `member` of `group`, which ended for `reason` and got `reward`."""

    member: int
    reward: float | None
    reason: Reason = Reason.FINAL_ANSWER
    group: str = "g-0000"
    attempt: int = 0
    parts: dict[str, float] = {}
    turn: float | None = None
    """The reward of its one turn."""
    late: bool = False
    """It came when its group was closed."""

    @property
    def rollout(self) -> str:
        """Its id."""
        return f"{self.group}-{self.member}.{self.attempt}"

    def trace(self) -> Trace:
        """The trace, which ended."""
        trace = small_trace(self.rollout, group=self.group, member=self.member, attempt=self.attempt)
        trace.end(Ending(self.reason))
        if self.reward is not None:
            given = () if self.turn is None else (TurnReward(1, self.turn),)
            trace.score(self.reward, self.parts, given)
        return trace


WORKED_EXAMPLE = [
    *(Attempt(member=place, reward=1.0) for place in range(3)),
    *(Attempt(member=place, reward=0.0) for place in (3, 4)),
    Attempt(member=5, reward=0.0, reason=Reason.MAX_TURNS),
    *(Attempt(member=place, reward=None, reason=Reason.SANDBOX_LOST) for place in (6, 7)),
]
"""Three pass, two fail, one is truncated with the bug still there, two are lost with their host."""


def judged(folder: Path, attempts: Iterable[Attempt], *, close: bool = True, **config: Any) -> RunReader:
    """A run of these, with its dispositions and, where its groups are closed, its advantages."""
    asked = RunConfig(environment="test-scores", tasks=1, **config)
    rows = list(attempts)
    traces = [each.trace() for each in rows]
    with RunWriter.create(folder, msgspec.to_builtins(Stored(run="g", asked=asked.plain()))) as writer:
        for trace in traces:
            writer.begin(trace)
            writer.turn(trace)
            writer.seal(trace)
        late = {each.rollout: Disposition(Fate.DROPPED, GROUP_CLOSED) for each in rows if each.late}
        kept = [trace for trace in traces if trace.id not in late]
        writer.annotate(annotate({**dispositions(kept, asked.rules), **late}))
        if close:
            found = advantages(kept, asked.rules, estimator=asked.estimator, scheduled=asked.group)
            writer.annotate(found.annotations())
    return RunReader(folder)
