"""What a run has left to do: its groups, one after the other, as far as its record does not hold them closed.

Rules: what the record holds is taken as it is, each attempt with the disposition that the rules give it now; a closed
group is never opened again, also one that closed before any of its members had ended (`closed_empty`). Where groups
without a signal are replaced by further tasks, their number follows from the record alone, so a resumed run goes on
where it stopped. The task list may be gone through several times: a group's id says its place in the list and its
round, so it stays its own whatever the list gains.
"""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from rollbook.errors import ConfigError
from rollbook.rewards import Outcome, annotate, decide, outcome_of
from rollbook.rewards.dispositions import PRODUCER
from rollbook.rollout import GroupPlan
from rollbook.rollout.pool import GROUP_CLOSED, GroupBook
from rollbook.run.config import RunConfig
from rollbook.store import RunReader
from rollbook.trace import Annotation, Disposition, Fate, Reason, Summary, Task, Trace, facts
from rollbook.trace.disposition import ending_of

__all__ = ["JUDGED_AGAIN", "Planner", "closed_empty", "of_the_run"]

JUDGED_AGAIN = "score"
"""Who writes the annotations of a run that is judged again."""

_PLACE = re.compile(r"([0-9]{4,})(?:r([0-9]+))?", re.ASCII)
"""A group's place in the list, and its round where that is not the first."""


class Planner:
    """Gives the books of the groups that are not closed."""

    def __init__(
        self, config: RunConfig, tasks: Sequence[Task], run: str, reader: RunReader, *, rounds: int | None = 1
    ) -> None:
        """`tasks`: those of the configuration, then those that may replace groups without a signal. `rounds`: how often
        the list is gone through; None: for ever. Raises `ConfigError` where the record is of other tasks, and where
        groups without a signal were to be replaced in several rounds."""
        if rounds != 1 and config.groups.resample:
            raise ConfigError("groups: resample goes with one round only: a further round draws every task anew")
        if rounds is not None and rounds < 1:
            raise ConfigError(f"the tasks are gone through at least once, not {rounds} times")
        self._config, self._tasks, self._run, self._rounds = config, tasks, run, rounds
        notes = of_the_run(reader.annotations())
        delivered = facts.advantages(note for note in notes if note.producer == PRODUCER)
        fates = facts.dispositions(notes)
        self._decided = fates.keys() | delivered.keys()
        self._late: list[str] = []
        self.closed = {fact.group for fact in delivered.values()} | closed_empty(reader.summaries(), fates)
        """Ids of the groups that the record holds closed."""
        self._flat = len(facts.flat_groups(delivered.values()))
        self._earlier = self._read(reader)
        self._refills = {
            (each.group, each.member) for rows in self._earlier.values() for each in rows if each.member >= config.group
        }
        self._round = self._number = 0

    @property
    def earlier(self) -> Mapping[str, Sequence[Outcome]]:
        """The attempts of groups that are not closed, by group."""
        return self._earlier

    @property
    def total(self) -> int:
        """Members of all groups that are planned so far; without an end to the rounds: up to the one that runs."""
        rounds = self._round + 1 if self._rounds is None else self._rounds
        return rounds * self._wanted * self._config.group + len(self._refills)

    @property
    def done(self) -> int:
        """Members that the record holds finished."""
        finished = {
            (each.group, each.member)
            for rows in self._earlier.values()
            for each in rows
            if each.disposition.fate is not Fate.RETRIED
        }
        return len(finished) + len(self.closed) * self._config.group

    def flat(self) -> bool:
        """A group closed without a signal: plan a further task in its place. False where none is left."""
        self._flat += 1
        return self._flat <= len(self._tasks) - self._config.tasks

    def refilled(self, outcome: Outcome) -> bool:
        """True where it is the first attempt of a member that took the place of a dropped one: one more is planned."""
        before = len(self._refills)
        if outcome.member >= self._config.group:
            self._refills.add((outcome.group, outcome.member))
        return len(self._refills) > before

    def next_book(self, chance: Callable[[], float] = random.random) -> GroupBook | None:
        """The book of the next group; None where there is none, which a group without a signal may change."""
        while True:
            if self._number >= self._wanted:
                if self._rounds is not None and self._round + 1 >= self._rounds:
                    return None
                self._round, self._number = self._round + 1, 0
            plan = self._plan(self._number, self._round)
            self._number += 1
            if plan.id not in self.closed:
                return self._book(plan, chance)

    def annotations(self) -> list[Annotation]:
        """The dispositions of what the record holds, again: a crash may have lost them. What still ran when its group
        was closed, and of which nobody was told, came late."""
        late = dict.fromkeys(self._late, Disposition(Fate.DROPPED, GROUP_CLOSED))
        again = {each.rollout: each.disposition for rows in self._earlier.values() for each in rows}
        return annotate({**again, **late})

    @property
    def _wanted(self) -> int:
        return min(self._config.tasks + self._flat, len(self._tasks))

    def _plan(self, number: int, round_: int) -> GroupPlan:
        place = f"{self._run}-{number:04d}" + (f"r{round_}" if round_ else "")
        return GroupPlan(id=place, task=self._tasks[number], size=self._config.group, round=round_)

    def _planned(self, group: str) -> str | None:
        """The task that a group is of; None where no plan has the group."""
        place = _PLACE.fullmatch(group.removeprefix(f"{self._run}-"))
        number = len(self._tasks) if place is None else int(place[1])
        return self._tasks[number].id if number < len(self._tasks) else None

    def _book(self, plan: GroupPlan, chance: Callable[[], float]) -> GroupBook:
        return GroupBook(
            plan,
            self._config.groups,
            self._config.rules,
            request_retries=self._config.limits.request_retries,
            estimator=self._config.estimator,
            outcome_part=self._config.outcome_part,
            earlier=self._earlier.get(plan.id, ()),
            chance=chance,
        )

    def _read(self, reader: RunReader) -> dict[str, list[Outcome]]:
        rows = sorted(reader.summaries(), key=lambda row: (row.group, row.member, row.attempt))
        found = defaultdict[str, list[Outcome]](list)
        reasons = defaultdict[tuple[str, int], list[Reason]](list)
        for row in rows:
            if (planned := self._planned(row.group)) is None:
                raise ConfigError(
                    f"rollout {row.rollout} in {reader.folder} is of the task {row.task!r}, which is behind the "
                    f"{len(self._tasks)} that were asked for now: ask for as many as before, further ones in the place "
                    "of groups without a signal included (--tasks, --resample)"
                )
            if planned != row.task:
                raise ConfigError(
                    f"rollout {row.rollout} in {reader.folder} is of the task {row.task!r}, and the environment now "
                    f"gives {planned!r} in its place: it has changed since; start a new run"
                )
            if row.group not in self.closed:
                trace, earlier = reader.get(row.rollout), reasons[row.group, row.member]
                found[row.group].append(self._outcome(trace, earlier))
                earlier.append(ending_of(trace).reason)
            elif row.rollout not in self._decided:
                self._late.append(row.rollout)
        return dict(found)

    def _outcome(self, trace: Trace, earlier: Sequence[Reason]) -> Outcome:
        rules = self._config.rules
        return outcome_of(trace, rules, decide(trace, rules, earlier=tuple(earlier)))


def closed_empty(rows: Iterable[Summary], fates: Mapping[str, Disposition]) -> set[str]:
    """The groups of which all that was decided came late, for the group was closed: nobody had ended by then, so there
    are no advantages that would say it."""
    rules = defaultdict[str, set[str]](set)
    for row in rows:
        if row.rollout in fates:
            rules[row.group].add(fates[row.rollout].rule)
    return {group for group, said in rules.items() if said == {GROUP_CLOSED}}


def of_the_run(notes: Iterable[Annotation]) -> list[Annotation]:
    """What the run itself decided: how far it has come does not change when it is judged again."""
    return [note for note in notes if note.producer != JUDGED_AGAIN]
