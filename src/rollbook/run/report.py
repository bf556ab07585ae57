"""What came out of a run, as plain numbers: endings, dispositions, rewards by group, time, tokens, tool calls.

Rules: everything is computed from stored traces and annotations, so the report of a run is the same whoever asks and
however often it was resumed; rewards are those that were given last; what was not reported is None and is never counted
as 0; each stored attempt counts, retried ones included, but only voters enter a group's mean.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from rollbook.rewards import decide
from rollbook.rollout import Part
from rollbook.run.report_rows import EndingRow, FateRow, GroupRow, MemberRow, RunReport, TimeRow, Tokens
from rollbook.run.resources import ResourceReport
from rollbook.trace import (
    Disposition,
    EndingKind,
    Fate,
    GroupKey,
    Reason,
    TimeSplit,
    TokenLedger,
    Trace,
    TraceSource,
    facts,
    samples,
)
from rollbook.trace.rescored import rescored_all

__all__ = ["report"]

ENGINE_PARTS = ("engine_queue", "engine_prefill", "engine_decode")
"""Parts of ``engine``, where the engine reports them."""


def report(source: TraceSource, resources: ResourceReport | None = None) -> RunReport:
    """The report of a batch. Traces are read one at a time and none is kept. `resources`: what its rollouts shared, as
    `rollbook.run.read_resources` finds it in the run's folder."""
    notes = source.annotations()
    tally = _Tally(facts.dispositions(notes), facts.advantages(notes))
    for trace in rescored_all(source.traces(), facts.rewards(notes)):
        tally.see(trace)
    return tally.report(resources)


@dataclass(slots=True)
class _Tally:
    """Counts over the traces of a batch."""

    decided: Mapping[str, Disposition]
    advantages: Mapping[str, facts.Advantage]
    endings: Counter[tuple[EndingKind, Reason]] = field(default_factory=Counter[tuple[EndingKind, Reason]])
    fates: Counter[tuple[Fate | None, str]] = field(default_factory=Counter[tuple[Fate | None, str]])
    members: defaultdict[tuple[GroupKey, str], list[MemberRow]] = field(
        default_factory=lambda: defaultdict[tuple[GroupKey, str], list[MemberRow]](list)
    )
    times: list[TimeSplit | None] = field(default_factory=list[TimeSplit | None])
    spans: list[tuple[float, float]] = field(default_factory=list[tuple[float, float]])
    prompt: list[int | None] = field(default_factory=list[int | None])
    cached: list[int | None] = field(default_factory=list[int | None])
    ledger: TokenLedger = field(default_factory=TokenLedger)
    parse: Counter[str] = field(default_factory=Counter[str])
    rollouts: int = 0
    turns: int = 0
    sampled: int = 0

    def see(self, trace: Trace) -> None:
        """Take one trace in."""
        self.rollouts += 1
        disposition = self.decided.get(trace.id)
        self._see_outcome(trace, disposition)
        for turn in trace.turns():
            self.turns += 1
            self.parse.update(str(call.status) for call in turn.message.tool_calls)
        for call in trace.calls:
            if call.error is None:
                self.prompt.append(call.prompt_tokens)
                self.cached.append(call.cached_tokens)
        self.sampled += trace.graph.sampled_count
        if trace.head.tokens:
            self.ledger += samples(trace, disposition=disposition or decide(trace)).ledger
        self.times.append(trace.tail.times)
        if trace.head.started is not None and trace.tail.finished is not None:
            self.spans.append((trace.head.started, trace.tail.finished))

    def _see_outcome(self, trace: Trace, disposition: Disposition | None) -> None:
        ending, head = trace.ending, trace.head
        if ending is not None:
            self.endings[ending.kind, ending.reason] += 1
        self.fates[(disposition.fate, disposition.rule) if disposition else (None, "")] += 1
        advantage = self.advantages.get(trace.id)
        row = MemberRow(
            rollout=trace.id,
            member=head.member,
            attempt=head.attempt,
            reason=ending.reason if ending else None,
            fate=disposition.fate if disposition else None,
            reward=trace.reward,
            advantage=advantage.advantage if advantage else None,
        )
        self.members[GroupKey(head.group, head.agent.seat), head.task.id].append(row)

    def report(self, resources: ResourceReport | None) -> RunReport:
        """The rows."""
        kinds = list(EndingKind)
        endings = sorted(self.endings.items(), key=lambda item: (kinds.index(item[0][0]), -item[1], item[0][1]))
        fates = sorted(self.fates.items(), key=lambda item: (-item[1], str(item[0])))
        groups = sorted(self.members.items(), key=lambda item: item[0])
        wall = _covered(self.spans) if self.spans else None
        return RunReport(
            rollouts=self.rollouts,
            endings=tuple(EndingRow(kind=kind, reason=reason, count=n) for (kind, reason), n in endings),
            dispositions=tuple(FateRow(fate=fate, rule=rule, count=n) for (fate, rule), n in fates),
            groups=tuple(self._group(key, task, rows) for (key, task), rows in groups),
            time=_time_rows(self.times),
            overlapped=_overlapped(self.times),
            tokens=Tokens(
                prompt=_total(self.prompt),
                cached=_total(self.cached),
                sampled=self.sampled,
                trained=self.ledger.trained,
                lost={str(reason): count for reason, count in sorted(self.ledger.lost.items())},
            ),
            turns=self.turns,
            tool_calls=dict(sorted(self.parse.items())),
            wall=wall,
            tokens_per_second=self.sampled / wall if wall else None,
            resources=resources,
        )

    def _group(self, key: GroupKey, task: str, rows: list[MemberRow]) -> GroupRow:
        closed = next((fact for row in rows if (fact := self.advantages.get(row.rollout))), None)
        voters = [row.reward for row in rows if row.fate in (Fate.USED, Fate.PENALISED) and row.reward is not None]
        return GroupRow(
            group=key.group,
            seat=key.seat,
            task=task,
            scheduled=closed.scheduled if closed else None,
            used=closed.used if closed else None,
            mean=math.fsum(voters) / len(voters) if voters else None,
            members=tuple(sorted(rows, key=lambda row: (row.member, row.attempt))),
        )


def _total(counts: Iterable[int | None]) -> int | None:
    """The sum; None where a count is missing, or there is none."""
    known = list(counts)
    return sum(count or 0 for count in known) if known and None not in known else None


def _time_rows(times: list[TimeSplit | None]) -> tuple[TimeRow, ...]:
    splits = [msgspec.structs.asdict(split) for split in times if split is not None]
    wall = math.fsum(split["wall"] for split in splits)
    rows: list[TimeRow] = []
    for part in ("wall", *Part, *ENGINE_PARTS):
        values = [split[part] for split in splits]
        seconds = math.fsum(values) if values and None not in values else None
        rows.append(
            TimeRow(part=str(part), seconds=seconds, share=seconds / wall if seconds is not None and wall > 0 else None)
        )
    return tuple(rows)


def _overlapped(times: list[TimeSplit | None]) -> float | None:
    known = [split.overlapped for split in times if split is not None]
    return math.fsum(known) if known else None


def _covered(spans: Iterable[tuple[float, float]]) -> float:
    """Seconds that at least one span covers."""
    covered, end = 0.0, -math.inf
    for start, stop in sorted(spans):
        covered += max(stop - max(start, end), 0.0)
        end = max(end, stop)
    return covered
