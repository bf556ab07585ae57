"""The queue between rollouts and trainer: groups that are open, those that wait to be taken, and what staleness does.

Rules. Open and waiting groups together are never more than the queue's size. A group's worth is settled once, when it
is taken: members that are too stale by then lose their vote, the advantages are computed from the others, and all of it
is in the record before the trainer gets the group. So a group whose advantages are recorded is never handed out again,
and one that waited when the run stopped is. A group of which nobody is left is recorded and not handed out. When the
trainer's version rises, groups that are certain not to fit any more are given up at once. Only rows are held here, no
traces and no tokens.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from rollbook.audit.selection import NO_TOOL, length_bucket
from rollbook.rewards import GroupAdvantages, Outcome
from rollbook.rollout.pool import Closed, GroupBook, GroupPlan, Listener
from rollbook.rollout.staleness import StaleBy, Staleness, StalenessBound, TokenVersions, split
from rollbook.run.recording import Recorder
from rollbook.store import RunReader, RunWriter
from rollbook.trace import Annotation, Trace, facts
from rollbook.trace.facts import STALENESS
from rollbook.trace.rescored import rescored_all
from rollbook.trace.sample import SampleSet, samples

__all__ = ["PRODUCER", "ClosedGroup", "GroupQueue", "StreamStats"]

PRODUCER = "stream"
"""Who writes the annotations of this module."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosedGroup:
    """A group that was handed out."""

    plan: GroupPlan
    outcomes: tuple[Outcome, ...]
    """Every attempt that ended before the group closed, with what became of it."""
    advantages: tuple[GroupAdvantages, ...]
    """For each seat; recorded before the group was handed out."""
    version: int
    """The trainer's when it took the group."""
    staleness: Mapping[str, Staleness]
    """Of each rollout that votes."""
    queued: float
    """Seconds that the group waited to be taken."""
    refilled: int
    """Members that took the place of dropped ones."""
    zero_variance: bool
    """All votes are equal: nothing is learned from it."""
    _reader: RunReader
    _rewards: Mapping[str, facts.Reward]

    @property
    def values(self) -> dict[str, float]:
        """Advantage by rollout, of those that vote."""
        return {rollout: value for each in self.advantages for rollout, value in each.values.items()}

    def traces(self) -> Iterator[Trace]:
        """The traces of those that vote, each read from the store when it is asked for."""
        voters = (self._reader.get(each.rollout) for each in self.outcomes if each.vote is not None)
        return rescored_all(voters, self._rewards)

    def samples(self, trace: Trace) -> SampleSet:
        """The samples of one of `traces`, with its advantage, and with those of its turns where they have their own."""
        turns = (each.turns[trace.id] for each in self.advantages if trace.id in each.turns)
        return samples(
            trace,
            disposition=next(each.disposition for each in self.outcomes if each.rollout == trace.id),
            advantage=self.values[trace.id],
            turn_advantages=dict(next(turns, ())),
        )


class StreamStats(msgspec.Struct, frozen=True, kw_only=True):
    """How a stream has fared since it was opened."""

    version: int
    """The trainer's."""
    open: int
    """Groups whose rollouts run."""
    waiting: int
    """Groups that wait to be taken."""
    delivered: int
    """Groups that were handed out."""
    used: int
    """Rollouts that vote in them."""
    zero_variance: int
    """Groups handed out whose votes are all equal."""
    empty: int
    """Groups that closed, or were taken, without anybody that votes; they were not handed out."""
    given_up: int
    """Of these, groups that could not fit the bound any more while their rollouts still ran."""
    stale: int
    """Rollouts that the bound dropped."""
    unknown: int
    """Rollouts handed out whose staleness nobody can tell."""
    stale_by_task: dict[str, int]
    """Rollouts that the bound dropped, by task. A bound that hits some more than others biases the batch."""
    stale_by_length: dict[str, int]
    """Likewise, by sampled tokens."""
    stale_by_tool: dict[str, int]
    """Likewise, by the tool that was called last."""
    trainer_waited: float
    """Seconds that the trainer waited because nothing was ready."""
    queued: float
    """Seconds that the groups handed out waited to be taken, all together."""
    queued_longest: float


@dataclass(slots=True)
class _Waiting:
    book: GroupBook
    closed: Closed
    since: float
    version: int
    """The trainer's at the close."""


class GroupQueue(Listener):
    """Keeps what the scheduler tells, and hands groups out."""

    def __init__(
        self,
        recorder: Recorder,
        writer: RunWriter,
        *,
        size: int,
        bound: StalenessBound | None,
        version: int,
        earlier: Mapping[str, Staleness],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`earlier`: what the record holds of rollouts that ended before the run stopped, of groups that come again."""
        self._recorder, self._writer, self._reader = recorder, writer, RunReader(writer.folder)
        self._size, self._bound, self._clock = size, bound, clock
        self._by = StaleBy.OLDEST if bound is None else bound.by
        self.version = version
        """The trainer's."""
        self.changed = asyncio.Event()
        """Set when something closed, was taken or is late."""
        self.waited = 0.0
        """Seconds that the trainer waited because nothing was ready."""
        self._open: dict[str, GroupBook] = {}
        self._waiting: deque[_Waiting] = deque()
        self._given_up: dict[str, _Waiting] = {}
        self._rules: dict[str, str] = {}
        self._running: dict[str, int] = {}
        self._finished = {rollout: each.finished for rollout, each in earlier.items()}
        self._counts = Counter[str]()
        self._hit: dict[str, Counter[str]] = {name: Counter() for name in ("task", "length", "tool")}
        self._queued: tuple[float, float] = (0.0, 0.0)

    # What the scheduler tells.

    @property
    def size(self) -> int:
        """The most groups that are open or wait."""
        return self._size

    @property
    def ready(self) -> int:
        """Groups that wait to be taken."""
        return len(self._waiting)

    @property
    def full(self) -> bool:
        """No further group may begin."""
        return len(self._open) + len(self._waiting) >= self._size

    async def room(self) -> None:
        """Wait until a group was taken, or otherwise left the queue."""
        self.changed.clear()
        await self.changed.wait()

    def opened(self, book: GroupBook) -> None:
        """A group begins."""
        self._open[book.plan.id] = book
        self._recorder.opened(book)

    def started(self, rollout: str) -> None:
        """A rollout begins to run."""
        self._running[rollout] = self.version

    def stopped(self, rollout: str) -> None:
        """It does not run any more, whether anything of it was kept or not."""
        self._running.pop(rollout, None)

    def ended(self, outcome: Outcome, *, late: bool) -> None:
        self._recorder.ended(outcome, late=late)
        given_up = self._given_up.get(outcome.group) if late else None
        if not late:
            self._finished[outcome.rollout] = self.version
        row = self._split(outcome, self.version, None if given_up is None else self.version)
        self._note({outcome.rollout: msgspec.structs.replace(row, dropped=given_up is not None)})
        if given_up is not None:
            self._hit_by_bound([outcome])
            given_up.closed = given_up.book.joined(given_up.closed, outcome)
            self._recorder.keep(given_up.closed)
            self.changed.set()

    def closed(self, closed: Closed) -> None:
        waiting = _Waiting(self._open.pop(closed.plan.id), closed, self._clock(), self.version)
        rule = self._rules.pop(closed.plan.id, None)
        if closed.used:
            self._waiting.append(waiting)
        elif rule is None:
            self._settle(waiting, closed, {})
        else:
            self._counts["given_up"] += 1
            self._settle(waiting, closed, dict.fromkeys(closed.changed, rule))
            self._given_up[closed.plan.id] = waiting
        self.changed.set()

    # What the trainer does.

    def take(self) -> ClosedGroup | None:
        """The group that waits longest, as it is now; None where none is ready."""
        while self._waiting:
            waiting = self._waiting.popleft()
            closed, rules = self._as_of_now(waiting)
            group = self._settle(waiting, closed, rules)
            self.changed.set()
            if group is not None:
                return group
        return None

    def advance(self, version: int) -> dict[str, str]:
        """The trainer is at `version` now. Returns the open groups that can not fit any more, each with the rule by
        which it is to be given up."""
        self.version = version
        kept = deque[_Waiting]()
        for waiting in self._waiting:
            closed, rules = self._as_of_now(waiting)
            if closed.used:
                kept.append(waiting)
            else:
                self._settle(waiting, closed, rules)
                self.changed.set()
        self._waiting = kept
        self._forget(version)
        bound = self._bound
        if bound is None:
            return {}
        rule = f"{bound}: its group was given up at version {version}"
        hopeless = {group: rule for group, book in self._open.items() if not self._can_fit(bound, book)}
        self._rules |= hopeless
        return hopeless

    def _forget(self, version: int) -> None:
        """Of groups that were given up before the last version, those nothing of which runs any more."""
        for group, waiting in tuple(self._given_up.items()):
            if waiting.version < version - 1 and self._running.keys().isdisjoint(waiting.closed.cancelled):
                del self._given_up[group]

    def stats(self) -> StreamStats:
        """The numbers so far."""
        counts = self._counts
        return StreamStats(
            version=self.version,
            open=len(self._open),
            waiting=len(self._waiting),
            delivered=counts["delivered"],
            used=counts["used"],
            zero_variance=counts["zero_variance"],
            empty=counts["empty"],
            given_up=counts["given_up"],
            stale=counts["stale"],
            unknown=counts["unknown"],
            stale_by_task=dict(self._hit["task"]),
            stale_by_length=dict(self._hit["length"]),
            stale_by_tool=dict(self._hit["tool"]),
            trainer_waited=self.waited,
            queued=self._queued[0],
            queued_longest=self._queued[1],
        )

    def _can_fit(self, bound: StalenessBound, book: GroupBook) -> bool:
        """False where no member that began can fit any more, or fewer can than the group needs. Members that wait to
        begin do not keep a group whose others are lost."""
        ended = [bound.drops(TokenVersions.of_outcome(each), self.version) is None for each in book.votes]
        began = [self._running[each.rollout] for each in book.running if each.rollout in self._running]
        fitting = sum(ended) + sum(bound.may_fit(version, self.version) for version in began)
        to_come = len(book.running) - len(began)
        if not ended and not began:
            return True
        return fitting > 0 and fitting + to_come >= book.least

    def _as_of_now(self, waiting: _Waiting) -> tuple[Closed, dict[str, str]]:
        """What a group is worth at this version, and by which rules it lost members."""
        rules: dict[str, str] = {}
        for outcome in waiting.closed.outcomes if self._bound else ():
            versions = TokenVersions.of_outcome(outcome)
            if outcome.vote is not None and self._bound and (rule := self._bound.drops(versions, self.version)):
                rules[outcome.rollout] = rule
        return (waiting.book.without(waiting.closed, rules) if rules else waiting.closed), rules

    def _settle(self, waiting: _Waiting, closed: Closed, rules: Mapping[str, str]) -> ClosedGroup | None:
        """Record what the group is worth for good; the group, where anybody is left. The advantages come last: they
        are what makes it settled."""
        waiting.closed = closed
        queued = self._clock() - waiting.since
        finished = {each.rollout: self._finished.pop(each.rollout, None) for each in closed.outcomes}
        stale = {
            each.rollout: msgspec.structs.replace(
                self._split(each, finished[each.rollout], self.version), queued=queued, dropped=each.rollout in rules
            )
            for each in closed.outcomes
            if each.vote is not None or each.rollout in rules
        }
        self._note(stale)
        self._recorder.closed(closed)
        self._hit_by_bound(each for each in closed.outcomes if each.rollout in rules)
        if not closed.used:
            self._counts["empty"] += 1
            return None
        votes = {each.rollout: stale[each.rollout] for each in closed.outcomes if each.vote is not None}
        self._counts.update(
            delivered=1,
            used=len(votes),
            zero_variance=int(closed.zero_variance),
            unknown=sum(each.total is None for each in votes.values()),
        )
        self._queued = self._queued[0] + queued, max(self._queued[1], queued)
        return ClosedGroup(
            plan=closed.plan,
            outcomes=closed.outcomes,
            advantages=closed.advantages,
            version=self.version,
            staleness=votes,
            queued=queued,
            refilled=closed.refilled,
            zero_variance=closed.zero_variance,
            _reader=self._reader,
            _rewards=closed.scores.rewards,
        )

    def _split(self, outcome: Outcome, finished: int | None, taken: int | None) -> Staleness:
        return split(TokenVersions.of_outcome(outcome), self._by, finished=finished, taken=taken)

    def _note(self, rows: Mapping[str, Staleness]) -> None:
        self._writer.annotate(
            Annotation(producer=PRODUCER, name=STALENESS, rollout=rollout, value=_plain(row))
            for rollout, row in rows.items()
        )

    def _hit_by_bound(self, outcomes: Iterable[Outcome]) -> None:
        for outcome in outcomes:
            self._counts["stale"] += 1
            self._hit["task"][outcome.task] += 1
            self._hit["length"][length_bucket(outcome.sampled)] += 1
            self._hit["tool"][outcome.last_tool or NO_TOOL] += 1


def _plain(row: Staleness) -> dict[str, Any]:
    return msgspec.to_builtins(row)
