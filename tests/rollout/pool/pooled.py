"""Outcomes by hand, an executor that does as it is told, and a listener that writes down what it hears."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field

from rollbook.rewards import Outcome
from rollbook.rollout import GroupPlan, GroupRules
from rollbook.rollout.pool import Closed, GroupBook, Order, Result
from rollbook.rollout.snapshot import Snapshot
from rollbook.trace import Disposition, EndingRules, Fate, Reason, Retry, Task

TASK = Task(id="t", prompt="p")
RULES = EndingRules()


def outcome(order: Order, reason: Reason = Reason.FINAL_ANSWER, reward: float | None = 1.0) -> Outcome:
    """What an order came to, with the disposition that the default rules give it."""
    rule = RULES.rule(reason)
    fate = Fate.USED
    if isinstance(rule, Retry):
        fate = Fate.RETRIED if order.earlier.count(reason) < rule.times else Fate.DROPPED
    elif reason.kind == "error":
        fate = Fate.DROPPED
    vote = reward if fate is Fate.USED else None
    return Outcome(
        rollout=order.rollout,
        group=order.group,
        seat="solver",
        task=order.task.id,
        member=order.member,
        attempt=order.attempt,
        reason=reason,
        disposition=Disposition(fate, RULES.describe(reason)),
        reward=vote,
        vote=vote,
        turns=1,
        sampled=1,
        last_tool=None,
        versions=((0, 1),),
    )


def book(size: int = 2, *, group: str = "g", earlier: tuple[Outcome, ...] = (), **rules: object) -> GroupBook:
    return GroupBook(
        GroupPlan(id=group, task=TASK, size=size),
        GroupRules(**rules),  # type: ignore[arg-type]
        RULES,
        earlier=earlier,
        request_retries=3,
    )


@dataclass
class Heard:
    """A listener."""

    outcomes: list[Outcome] = field(default_factory=list[Outcome])
    late: list[Outcome] = field(default_factory=list[Outcome])
    groups: list[Closed] = field(default_factory=list[Closed])

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        (self.late if late else self.outcomes).append(outcome)

    def closed(self, closed: Closed) -> None:
        self.groups.append(closed)


Says = Callable[[Order], Outcome | float | None]


class Carries:
    """An executor: `says` gives the outcome of an order, None for a worker that dies, or a number of seconds for which
    it says nothing, and then an outcome as the ending of a cancelled rollout."""

    def __init__(self, says: Says, seconds: float = 0.0) -> None:
        self.orders: list[Order] = []
        self.cancelled: list[str] = []
        self.running = self.most = 0
        self._says, self._seconds = says, seconds
        self._stops: dict[str, asyncio.Event] = {}

    async def run(self, order: Order) -> Result | None:
        self.orders.append(order)
        self.running += 1
        self.most = max(self.most, self.running)
        stop = self._stops[order.rollout] = asyncio.Event()
        try:
            said = self._says(order)
            if isinstance(said, float):
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stop.wait(), said)
                said = outcome(order, Reason.CANCELLED, None) if stop.is_set() else outcome(order)
            elif self._seconds:
                await asyncio.sleep(self._seconds)
        finally:
            self.running -= 1
        return None if said is None else Result(rollout=order.rollout, outcome=said, retries_left=order.retries_left)

    def cancel(self, rollout: str) -> None:
        self.cancelled.append(rollout)
        if rollout in self._stops:
            self._stops[rollout].set()

    def snapshot(self) -> Snapshot:
        return Snapshot()
