"""What a run has left to do: its groups, one after the other, as far as its record does not hold them closed.

Rules: what the record holds is taken as it is, each attempt with the disposition that the rules give it now; a closed
group is never opened again. Where groups without a signal are replaced by further tasks, their number follows from the
record alone, so a resumed run goes on where it stopped.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

from rollbook.errors import ConfigError
from rollbook.rewards import Outcome, annotate, decide, mean_baseline, mean_spread, outcome_of
from rollbook.rewards.dispositions import PRODUCER
from rollbook.rollout import GroupPlan
from rollbook.rollout.pool import GroupBook
from rollbook.run.config import RunConfig
from rollbook.store import RunReader
from rollbook.trace import Annotation, Fate, Reason, Task, Trace, facts
from rollbook.trace.disposition import ending_of

__all__ = ["Planner"]


class Planner:
    """Gives the books of the groups that are not closed."""

    def __init__(self, config: RunConfig, tasks: Sequence[Task], run: str, reader: RunReader) -> None:
        """`tasks`: those of the configuration, then those that may replace groups without a signal. Raises
        `ConfigError` where the record is of other tasks."""
        self._config = config
        self._plans = [
            GroupPlan(id=f"{run}-{number:04d}", task=task, size=config.group) for number, task in enumerate(tasks)
        ]
        notes = reader.annotations()
        delivered = facts.advantages(note for note in notes if note.producer == PRODUCER)
        self.closed = {fact.group for fact in delivered.values()}
        """Ids of the groups that the record holds closed."""
        values = {(fact.group, fact.seat): fact.values.values() for fact in delivered.values()}
        self._flat = sum(len(set(each)) == 1 for each in values.values())
        self._earlier = self._read(reader)
        self._number = 0

    @property
    def earlier(self) -> Mapping[str, Sequence[Outcome]]:
        """The attempts of groups that are not closed, by group."""
        return self._earlier

    @property
    def total(self) -> int:
        """Members of all groups that are planned so far."""
        return sum(plan.size for plan in self._plans[: self._wanted])

    @property
    def done(self) -> int:
        """Members that the record holds finished."""
        finished = {
            (each.group, each.member)
            for rows in self._earlier.values()
            for each in rows
            if each.disposition.fate is not Fate.RETRIED
        }
        return len(finished) + sum(plan.size for plan in self._plans if plan.id in self.closed)

    def flat(self) -> bool:
        """A group closed without a signal: plan a further task in its place. False where none is left."""
        self._flat += 1
        return self._flat <= len(self._plans) - self._config.tasks

    def next_book(self, chance: Callable[[], float] = random.random) -> GroupBook | None:
        """The book of the next group; None where there is none, which a group without a signal may change."""
        while self._number < self._wanted:
            plan = self._plans[self._number]
            self._number += 1
            if plan.id not in self.closed:
                return self._book(plan, chance)
        return None

    def annotations(self) -> list[Annotation]:
        """The dispositions of what the record holds, again: a crash may have lost them."""
        return annotate({each.rollout: each.disposition for rows in self._earlier.values() for each in rows})

    @property
    def _wanted(self) -> int:
        return min(self._config.tasks + self._flat, len(self._plans))

    def _book(self, plan: GroupPlan, chance: Callable[[], float]) -> GroupBook:
        return GroupBook(
            plan,
            self._config.groups,
            self._config.rules,
            request_retries=self._config.limits.request_retries,
            estimator=mean_spread if self._config.spread else mean_baseline,
            earlier=self._earlier.get(plan.id, ()),
            chance=chance,
        )

    def _read(self, reader: RunReader) -> dict[str, list[Outcome]]:
        planned = {plan.id: plan.task.id for plan in self._plans}
        rows = sorted(reader.summaries(), key=lambda row: (row.group, row.member, row.attempt))
        found = defaultdict[str, list[Outcome]](list)
        reasons = defaultdict[tuple[str, int], list[Reason]](list)
        for row in rows:
            if planned.get(row.group) != row.task:
                raise ConfigError(
                    f"rollout {row.rollout} in {reader.folder} is of the task {row.task!r}, and the environment now "
                    f"gives {planned.get(row.group)!r} in its place: it has changed since; start a new run"
                )
            if row.group not in self.closed:
                trace, earlier = reader.get(row.rollout), reasons[row.group, row.member]
                found[row.group].append(self._outcome(trace, earlier))
                earlier.append(ending_of(trace).reason)
        return dict(found)

    def _outcome(self, trace: Trace, earlier: Sequence[Reason]) -> Outcome:
        rules = self._config.rules
        return outcome_of(trace, rules, decide(trace, rules, earlier=tuple(earlier)))
