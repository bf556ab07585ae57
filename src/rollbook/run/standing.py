"""How far a run has come: what was planned, and what of it is finished.

A member is finished when an attempt of it is stored that does not run again; a group is closed when its advantages were
computed, which is once, behind its last member, or when it closed before anybody had ended.
"""

from __future__ import annotations

from collections import Counter

import msgspec

from rollbook.errors import ConfigError
from rollbook.run.planning import closed_empty, of_the_run
from rollbook.run.resume import asked
from rollbook.store import RunReader
from rollbook.trace import Disposition, EndingRules, Fate, Retry, Summary, facts

__all__ = ["Standing", "standing"]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """How far a run has come."""

    planned: int
    """Members of all groups; without an end to the rounds: of those that began."""
    finished: int
    """Of these, those that never run again."""
    groups: int
    closed: int
    """Groups that are over."""
    stream: bool
    """True where a trainer took its groups from a stream."""

    @property
    def missing(self) -> int:
        """Members that a resume would run."""
        return max(self.planned - self.finished, 0)


def standing(source: RunReader) -> Standing | None:
    """How far the run has come; None where nothing says what was planned, as for imported traces."""
    try:
        stored = asked(source.manifest, source.folder)
    except ConfigError:
        return None
    config = stored.planned()
    if config is None:
        return None
    notes, rows = of_the_run(source.annotations()), list(source.summaries())
    fates, advantages = facts.dispositions(notes), facts.advantages(notes)
    done = {(row.group, row.member) for row in rows if not _runs_again(row, fates.get(row.rollout), config.rules)}
    members = Counter(group for group, _ in done)
    closed = {fact.group for fact in advantages.values()} | closed_empty(rows, fates)
    flat = len(facts.flat_groups(advantages.values()))
    rounds = 1 if stored.stream is None else stored.stream.rounds
    tasks = config.tasks * (rounds or 1) + min(flat, config.resample)
    groups = max(tasks, len({row.group for row in rows}))
    return Standing(
        planned=groups * config.group,
        finished=len(closed) * config.group
        + sum(min(count, config.group) for group, count in members.items() if group not in closed),
        groups=groups,
        closed=len(closed),
        stream=stored.stream is not None,
    )


def _runs_again(row: Summary, decided: Disposition | None, rules: EndingRules) -> bool:
    """By its disposition; one that a dead process left without one, by the rule that a resume will apply."""
    if decided is not None:
        return decided.fate is Fate.RETRIED
    return row.reason is None or isinstance(rules.rule(row.reason), Retry)
